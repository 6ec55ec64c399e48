module github.com/worqr/worqr/examples/demo

go 1.26.0

require (
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/matryer/is v1.4.1
	github.com/worqr/worqr v0.0.0
)

require (
	github.com/gomodule/redigo v1.9.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
)

replace github.com/worqr/worqr => ../..
