# detd. `make demo` and `make check` need nothing but this file on a fresh Debian 12; `make help` lists the rest.
SHELL  := /bin/bash
SAN    ?=
comma  := ,
B      ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
CC     := gcc
PREFIX ?= $(HOME)/.local

# ---- the one list of Debian packages (make deps) ----
DEPS := build-essential pkg-config libuv1-dev libjansson-dev libsqlite3-dev libturbojpeg0-dev libpng-dev libcmocka-dev \
        sqlite3 python3 clang-format clang-tidy cppcheck shellcheck

WARN := -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
SANF := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
BASE := -std=c17 -O2 -g -ffp-contract=off -fno-math-errno $(WARN) -D_GNU_SOURCE -I. -MMD -MP $(SANF)
LINK  = $(CC) $(SANF) -g -o $@ $(filter %.o,$^) $(LDFLAGS) -lpthread

objs = $(patsubst %.c,$(B)/%.o,$(wildcard $(1)/*.c))
lib  = $(filter-out %/main.o,$(foreach d,$(1),$(call objs,$(d))))

PROTO  := $(call lib,proto)
FLOORS := worker worker/train worker/models worker/layers worker/data worker/eval worker/comm worker/core
WORKER := $(call lib,$(FLOORS))

# ---- the CPU device: one source, one object per ISA, its only symbol cpu_backend_<isa> ----
ISAS         := avx512 avx2 generic
ARCH_avx512  := -march=x86-64-v4 -mprefer-vector-width=512
ARCH_avx2    := -march=x86-64-v3
ARCH_generic := -march=x86-64
CPU_SRC      := $(wildcard worker/cpu/*.c)
# The unrolled kernels cost gcc minutes under a sanitizer at -O3; optimisation levels do not change the bits.
CPU_OPT      := $(if $(SAN),-O1 -fno-var-tracking $(if $(findstring undefined,$(SAN)),-fno-sanitize=object-size$(comma)pointer-overflow$(comma)null$(comma)alignment),-O3)
CPU          := $(ISAS:%=$(B)/cpu-%.o)

.DEFAULT_GOAL := all
all: $(addprefix $(B)/,detd detctl detd-job detd-worker)

$(B)/detd: $(call objs,daemon) $(PROTO)
	$(LINK) -luv -ljansson -lsqlite3
$(B)/detctl: $(call objs,client) $(PROTO)
	$(LINK) -ljansson -lm
$(B)/detd-job: $(call objs,supervisor) $(PROTO)
	$(LINK) -luv -ljansson
$(B)/detd-worker: $(B)/worker/main.o $(WORKER) $(CPU) $(PROTO)
	$(LINK) -ljansson -lturbojpeg -lpng -lm -ldl

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -c -o $@ $<

# The migrations are embedded with .incbin, which -MMD does not see.
$(B)/daemon/schema.o: $(wildcard schema/*.sql)
# Folding gradients is a plain loop that -O2 does not vectorise.
$(B)/worker/core/tree.o: CFLAGS += -O3

define ISA_RULES
$(B)/cpu-$(1)/%.o: worker/cpu/%.c
	@mkdir -p $$(@D)
	$(CC) $(BASE) $(CPU_OPT) $(ARCH_$(1)) -DISA_NAME='"$(1)"' $(CFLAGS) -c -o $$@ $$<
$(B)/cpu-$(1).o: $(CPU_SRC:worker/cpu/%.c=$(B)/cpu-$(1)/%.o)
	ld -r -o $$@ $$^
	objcopy --redefine-sym detd_backend=cpu_backend_$(1) --keep-global-symbol=cpu_backend_$(1) $$@
endef
$(foreach i,$(ISAS),$(eval $(call ISA_RULES,$(i))))

# ---- tests: one cmocka program a file. Its first lines say what it is linked with: "uses: proto daemon" (folders), "cpu" = the CPU device ----
TEST_SRC := $(wildcard tests/unit/test_*.c tests/device/test_*.c tests/golden/test_*.c)
BENCH_SRC := $(wildcard tests/bench/bench_*.c)
TESTS    := $(TEST_SRC:%.c=$(B)/%)
uses      = $(shell sed -n '1,3s|.*uses: \([a-z_/ ]*\).*|\1|p' $(1))
define TEST_RULE
$(B)/$(1:.c=): $(B)/$(1:.c=.o) $(call lib,$(filter-out cpu,$(call uses,$(1)))) $(if $(filter cpu,$(call uses,$(1))),$(CPU))
	$$(LINK) -lcmocka -luv -ljansson -lsqlite3 -lturbojpeg -lpng -lm -ldl
endef
$(foreach t,$(TEST_SRC) $(BENCH_SRC),$(eval $(call TEST_RULE,$(t))))
BENCH    := $(BENCH_SRC:%.c=$(B)/%)
tests: $(TESTS)

# Every kernel body must also be device code.
NVCC ?= $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
$(B)/nvcc_bodies.o: tests/device/nvcc_bodies.cu $(wildcard worker/kernels/*.h)
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -fmad=false -arch=sm_90 -I. -c -o $@ $<

# SAN=thread slows training too much for the end-to-end tests; they run plain and with address,undefined.
E2E ?= $(if $(findstring thread,$(SAN)),,$(sort $(wildcard tests/e2e/*.sh)))
check: deps
	@$(MAKE) --no-print-directory -j$$(nproc) B=$(B) SAN=$(SAN) all tests $(if $(NVCC),$(B)/nvcc_bodies.o)
	@$(MAKE) --no-print-directory B=$(B) SAN=$(SAN) layers
	@tests/run.sh $(B) $(TESTS) $(E2E)

# The include direction, read off what the compiler wrote down.
layers: all
	@tests/layers.sh $(B)

# ---- packages: installs what is missing of the one list above; apt's lock is waited for ----
deps:
	@missing=$$(for p in $(DEPS); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'install ok installed' || echo $$p; done); \
	[ -z "$$missing" ] && exit 0; \
	sudo=; [ "$$(id -u)" = 0 ] || sudo=$$(command -v sudo) || { echo "missing packages, and no way to install them: $$missing" >&2; exit 1; }; \
	echo "installing: "$$missing; \
	$$sudo apt-get -o DPkg::Lock::Timeout=600 -qq update && \
	$$sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -qq install -y --no-install-recommends $$missing >/dev/null || \
	{ echo "could not install: "$$missing >&2; exit 1; }

demo: deps
	@$(MAKE) --no-print-directory -j$$(nproc) B=$(B) all
	@tests/demo/demo.sh $(B)

bench: all
	@$(MAKE) --no-print-directory -j$$(nproc) B=$(B) $(BENCH)
	@tests/bench/bench.sh $(B)

# ---- lint: every finding fails ----
SOURCES := $(wildcard proto/*.[ch] daemon/*.[ch] supervisor/*.[ch] client/*.[ch] worker/*.[ch] worker/*/*.[ch] tests/*/*.[ch])
SCRIPTS  = $(wildcard .ci/run tests/*.sh tests/*/*.sh)
lint: deps
	clang-format --dry-run -Werror $(SOURCES)
	cppcheck --quiet --error-exitcode=1 --std=c11 --language=c --enable=warning,performance,portability --inline-suppr \
	    --suppress=missingIncludeSystem --suppress=invalidPointerCast -D_GNU_SOURCE -D__x86_64__ -I. $(filter %.c,$(SOURCES))
	printf '%s\n' $(filter-out worker/cpu/% tests/%,$(filter %.c,$(SOURCES))) | xargs -P $$(nproc) -I{} clang-tidy --quiet --warnings-as-errors='*' {} -- -std=c17 -D_GNU_SOURCE -I. 2>/dev/null
	shellcheck -x $(SCRIPTS)

# ---- install ----
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5 $(DESTDIR)$(PREFIX)/share/man/man8
	install -t $(DESTDIR)$(PREFIX)/bin $(addprefix $(B)/,detd detctl detd-job detd-worker)
	for m in man/*; do install -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man$${m##*.} $$m; done
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,detd detctl detd-job detd-worker)
	for m in man/*; do rm -f $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/}; done

# Both commands of README in a bare Debian root of its own, where a package missing from the list shows. Needs root and debootstrap.
check-fresh:
	@tests/fresh.sh

clean:
	rm -rf build build-*

help:
	@echo 'make            the four programs, in build/'
	@echo 'make demo       install packages, build, train a small detector with two ranks under a private detd'
	@echo 'make check      install packages, build, run every test        SAN=address,undefined or SAN=thread: with sanitizers'
	@echo 'make bench      speed, as ratios against a peer or a limit'
	@echo 'make lint       clang-format, clang-tidy, cppcheck, shellcheck    make layers: include direction'
	@echo 'make install    PREFIX=$(PREFIX) DESTDIR=                         make uninstall'
	@echo 'make check-fresh  check and demo in a bare Debian 12 root (root, debootstrap)'

-include $(shell find $(B) -name '*.d' 2>/dev/null)
.PHONY: all tests check layers deps demo bench lint install uninstall check-fresh clean help
