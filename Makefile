STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
MODULES = $$(go list -m -f '{{.Dir}}')

.PHONY: help demo test test-modules lint bench

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-5s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## three peers at work, on a Redis in memory
	@go run ./cmd/worqr demo

test: ## set up what is missing and run the tests of every module
	@scripts/setup
	@run=; \
	if [ -z "$$WORQR_TEST_REDIS" ] && ! command -v redis-server >/dev/null && ! command -v valkey-server >/dev/null; \
	then run="go run ./integration/cmd/withredis"; fi; \
	$$run $(MAKE) --no-print-directory test-modules

# Without a list of packages go test shows what passing tests say: here, that
# they were skipped.
test-modules:
	@failed=0; for module in $(MODULES); do \
		case $$module in */integration) packages= ;; *) packages=./... ;; esac; \
		(cd "$$module" && go test -race -shuffle=on $$packages) || failed=1; \
	done; exit $$failed

lint: ## check format, code, examples and module files
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted:" $$files; exit 1; fi
	@go build -o /dev/null ./examples/...
	@failed=0; for module in $(MODULES); do \
		(cd "$$module" && go vet ./...) || failed=1; \
		(cd "$$module" && go run $(STATICCHECK) ./...) || failed=1; \
		scripts/tidy "$$module" || failed=1; \
	done; exit $$failed

bench: ## measure beside asynq and bare commands, for half an hour, into docs/performance.md
	@command -v redis-server >/dev/null || command -v valkey-server >/dev/null || scripts/setup redis-server
	@go run ./bench
