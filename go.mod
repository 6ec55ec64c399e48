module github.com/worqr/worqr

go 1.26

require (
	github.com/gomodule/redigo v1.9.3
	github.com/google/uuid v1.6.0
	github.com/matryer/is v1.4.1
)
