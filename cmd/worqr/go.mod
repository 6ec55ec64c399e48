module github.com/worqr/worqr/cmd/worqr

go 1.26.0

require (
	github.com/alecthomas/kong v1.17.0
	github.com/alicebob/miniredis/v2 v2.40.0
	github.com/gomodule/redigo v1.9.3
	github.com/matryer/is v1.4.1
	github.com/worqr/worqr v0.0.0
	golang.org/x/term v0.47.0
)

require (
	github.com/google/uuid v1.6.0 // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
	golang.org/x/sys v0.49.0 // indirect
)
