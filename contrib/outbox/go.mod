module github.com/worqr/worqr/contrib/outbox

go 1.26.0

require (
	github.com/google/uuid v1.6.0
	github.com/worqr/worqr v0.0.0
)

require github.com/gomodule/redigo v1.9.3 // indirect
