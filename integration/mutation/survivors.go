package main

// survivors are the mutants that make no difference, each with the reason.
var survivors = []survivor{}
