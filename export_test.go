package worqr

// Older compares versions of Redis.
var Older = older
