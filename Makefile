STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK = golang.org/x/vuln/cmd/govulncheck@v1.9.0
MODULES = $$(go list -m -f '{{.Dir}}')

.PHONY: help demo test test-modules browser test-engines survive engines-long soak lint vulnerabilities bench release

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-15s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run three peers on an in-memory Redis
	@go run ./examples/demo

test: ## install what is missing and run the tests of every module (RACE=-race: all tests, as in CI)
	@scripts/setup $(if $(RACE),--race)
	@run=; \
	if [ -z "$$WORQR_TEST_REDIS" ] && ! command -v redis-server >/dev/null && ! command -v valkey-server >/dev/null; \
	then run="go run ./integration/cmd/withredis"; fi; \
	$$run $(MAKE) --no-print-directory test-modules

# vet is off: "make lint" runs it. -w leaves out what only debuggers read, which links faster. As many
# packages run in parallel as there are processors, though tests mostly wait: with more, the test
# servers get so little time that calls give up. Tests that start several servers take long, so
# they are left to CI, which runs "make test RACE=-race". Even there, packages that measure, start
# programs or have few goroutines of their own run without the race detector. The tests in
# integration run without a list of packages, so that go test shows which of them were skipped.
RACE =
TEST = go test -vet=off -ldflags=-w -shuffle=on $(if $(RACE),,-short)
UNRACED = internal/store internal/walls
PLAIN = ./internal/store ./examples/worker ./contrib/prometheus ./cmd/worqr/... ./bench/... ./internal/walls ./contrib/otel ./contrib/outbox ./integration/outbox ./examples/demo ./examples/service ./examples/fromasynq
RACED = ./integration/api ./worqrtest/... $$(go list ./... | grep -v $(UNRACED:%=-e /%$$))
test-modules:
	@for shell in zsh fish; do command -v $$shell >/dev/null || echo "test: skipping completion in $$shell, which isn't installed"; done
	@ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || echo "test: skipping the outbox on PostgreSQL, which isn't installed"
	@command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || echo "test: skipping the outbox on MariaDB, which isn't installed"
	@failed=0; \
	$(TEST) $(PLAIN) $(if $(RACE),,$(RACED)) || failed=1; \
	$(if $(RACE),$(TEST) $(RACE) $(RACED) || failed=1;) \
	(cd integration && $(TEST) $(RACE)) || failed=1; \
	[ $$failed = 1 ] || echo "All tests passed."; \
	exit $$failed

# The browser tests of the dashboard aren't part of "make test": Chromium is a large package to install
# unasked, and keeps both processors of a small machine busy for a minute. CI runs them.
browser: ## test the dashboard in Chromium, for a minute; installs Debian's if it's missing
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || scripts/setup chromium || true
	@cd integration && go test -vet=off ./browser

# "make test" uses a single Redis server, so this target runs the other kinds. Except on Valkey, tests
# that need a single server of their own are skipped: internal/redistest/engine.go says which and why.
ENGINES = valkey tls sentinel cluster

test-engines: ## run the public tests on Valkey, with TLS, on Sentinel and in a cluster; WORQR_TEST_SERVER=/path selects the server
	@scripts/setup
	@failed=0; for engine in $(ENGINES); do \
		server=$$WORQR_TEST_SERVER; if [ $$engine = valkey ]; then server=$$(scripts/setup --valkey) || { failed=1; continue; }; fi; \
		echo "on $$engine:"; \
		WORQR_TEST_ENGINE=$$engine WORQR_TEST_SERVER=$$server go test -shuffle=on . ./dash ./integration/api || failed=1; \
	done; exit $$failed

# More fault injection than in "make test". Each suite prints its seed and the command that repeats
# it. The suites run without the race detector, which would take up half of the time. They mostly
# wait for servers and leases, so two run at a time, the longest first.
LONGER = '^(TestRandom|TestNumbers|TestGuessers)$$' # tests that find more with time
SURVIVE = "engines -v -engines.rounds $(ROUNDS)" "simulation -sim.hours $(SIM) -sim.first 1" failpoints scripts search "recurring -v -recurring.schedules 400 -recurring.kills 30 -recurring.lease 2s"
FUZZ ?= 30s
ROUNDS ?= 4
SIM ?= 10
HOURS ?= 100
SOAK ?= 1h
FAULTS ?= 50

survive: ## run the fault-injection suites, for 20 to 30 minutes
	@command -v redis-server >/dev/null || scripts/setup redis-server
	@failed=0; \
	printf '%s\0' $(SURVIVE) | xargs -0 -n 1 -P 2 sh -c 'said=$$(cd integration && go test -vet=off ./$$0 -timeout 20m 2>&1); \
		ok=$$?; printf "%s\n" "$$said"; exit $$ok' || failed=1; \
	WORQR_TEST_CHAOS=15s go test -vet=off ./integration/api -run $(LONGER) -random.seeds 6 || failed=1; \
	scripts/fuzz $(FUZZ) || failed=1; \
	exit $$failed

engines-long: ## run 50 failovers, slot moves and promotions under load, for about 40 minutes
	@command -v redis-server >/dev/null || scripts/setup redis-server
	@cd integration && go test ./engines -v -run 'TestFailovers|TestMigrations' -engines.rounds 50 -engines.strict -timeout 40m
	@cd integration && go test ./engines -v -run 'TestRollbacks|TestPromotions|TestClusterRollbacks|TestTakeovers' -engines.rounds 20 -engines.strict -timeout 40m

soak: ## run all fault injection for as long as you like: make soak SOAK=6h HOURS=100 FAULTS=200 FUZZ=10m
	@command -v redis-server >/dev/null || scripts/setup redis-server
	@failed=0; \
	(cd integration && go test ./search -timeout 0) || failed=1; \
	(cd integration && go test ./failpoints -race -timeout 30m) || failed=1; \
	(cd integration && go test ./recurring -v -recurring.schedules 1000 -recurring.kills 500 -recurring.lease 3s -timeout 60m) || failed=1; \
	(cd integration && go test ./outbox -v -race -run TestCampaign -outbox.rows 100000 -outbox.kills 100 -timeout 60m) || failed=1; \
	(cd integration && go test ./simulation -run TestSimulation -sim.hours $(HOURS) -timeout 0) || failed=1; \
	(cd integration && go test ./scripts -run TestRandom -sequences 20000 -timeout 0) || failed=1; \
	(cd integration && go test ./engines -v -run 'TestKills|TestOutages|TestPowerFailures|TestFaults' -engines.rounds $(FAULTS) -timeout 0) || failed=1; \
	WORQR_TEST_CHAOS=$(SOAK) go test -run 'TestCheckBusyFleet|TestLargestTask' -timeout 0 ./integration/api || failed=1; \
	go test -run '^TestRandom$$' -random.seeds 2000 -timeout 0 ./integration/api || failed=1; \
	scripts/fuzz $(FUZZ) || failed=1; \
	exit $$failed

# The library and its command build on Windows and on 32-bit platforms, and what differs between
# platforms builds on macOS, too. Tests, benchmarks and campaigns need Unix, since they stop processes.
lint: ## check format, code, examples and module files
	@files=$$(gofmt -l .); if [ -n "$$files" ]; then echo "not formatted:" $$files; exit 1; fi
	@failed=0; for module in . ./cmd/worqr; do \
		(cd "$$module" && GOOS=windows GOARCH=386 go build -o /dev/null ./...) || failed=1; \
	done; GOOS=darwin go build ./internal/program ./internal/redistest || failed=1; \
	for module in $(MODULES); do \
		(cd "$$module" && go vet ./...) || failed=1; \
		(cd "$$module" && go run $(STATICCHECK) ./...) || failed=1; \
		scripts/tidy "$$module" || failed=1; \
	done; exit $$failed

vulnerabilities: ## look for known vulnerabilities in what the modules call; needs vuln.go.dev
	@failed=0; for module in $(MODULES); do (cd "$$module" && go run $(GOVULNCHECK) ./...) || failed=1; done; exit $$failed

bench: ## compare with asynq and bare commands for about 20 minutes, and write docs/performance.md
	@command -v redis-server >/dev/null || command -v valkey-server >/dev/null || scripts/setup redis-server
	@go run ./bench

release: ## write a version into the work tree, and print what to tag: make release VERSION=v0.3.0 (see RELEASING.md)
	@go run ./scripts/release prepare $(VERSION)
