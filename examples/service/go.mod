module github.com/worqr/worqr/examples/service

go 1.26.0

require (
	github.com/worqr/worqr v0.0.0
	github.com/worqr/worqr/contrib/outbox v0.0.0
	github.com/worqr/worqr/worqrtest v0.0.0
	modernc.org/sqlite v1.62.0
)

require (
	github.com/alicebob/miniredis/v2 v2.40.0 // indirect
	github.com/dustin/go-humanize v1.1.0 // indirect
	github.com/gomodule/redigo v1.9.3 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/ncruces/go-strftime v1.1.0 // indirect
	github.com/remyoudompheng/bigfft v0.0.0-20230129092748-24d4a6f8daec // indirect
	github.com/yuin/gopher-lua v1.1.2 // indirect
	golang.org/x/sys v0.49.0 // indirect
	modernc.org/libc v1.80.1 // indirect
	modernc.org/mathutil v1.7.1 // indirect
	modernc.org/memory v1.12.1 // indirect
)

replace (
	github.com/worqr/worqr => ../..
	github.com/worqr/worqr/contrib/outbox => ../../contrib/outbox
	github.com/worqr/worqr/worqrtest => ../../worqrtest
)
