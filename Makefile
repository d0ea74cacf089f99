# SPDX-License-Identifier: Apache-2.0 # detd. `make demo` and `make check` need only this tree on a fresh Debian 12 or 13; `make help` lists the rest.
SHELL  := /bin/bash
SAN    ?=
comma  := ,
B      ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
CC     := gcc
PREFIX ?= $(HOME)/.local
# All cores unless -j is given. Several goals on one command line run in their order, and each of them uses all cores.
CORES := -j$(shell nproc)
ifeq ($(MAKELEVEL)$(word 2,$(MAKECMDGOALS)),0)
MAKEFLAGS := $(MAKEFLAGS) $(CORES)
CORES :=
endif
# make of a part of the same build. Its line in a recipe begins with +, so that it shares the jobs of this make.
PART := $(MAKE) --no-print-directory $(CORES) B=$(B) SAN=$(SAN)

# ---- Debian packages (make deps): for the programs and the demo, and the ones that only tests and lint need ----
DEPS_DEMO := build-essential pkg-config libuv1-dev libjansson-dev libsqlite3-dev libturbojpeg0-dev libpng-dev libexpat1-dev libyaml-dev \
             libwebp-dev sqlite3 python3
DEPS      := $(DEPS_DEMO) libcmocka-dev valgrind clang-format clang-tidy cppcheck shellcheck

# WERROR=1 makes warnings errors, as CI does. A user's compiler may be newer than ours and know more warnings.
WERROR ?=
WARN := -Wall -Wextra $(if $(WERROR),-Werror) -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
SANF := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
# The version number of the interface between trainer and CUDA plugin: a hash of all its headers (worker/comm/abi.h). Computed when a rule first uses it.
ABI   = $(eval ABI := $(shell d=$$($(CC) -I. -MM worker/comm/abi.h 2>/dev/null) && cat $$(sed 's/^[^:]*://; s/\\$$//' <<<"$$d") | \
        sha256sum | sed 's/^\(.\{8\}\).*/0x\1u/'))$(ABI)
# Only the files that include worker/comm/abi.h are compiled with the number; the others do not depend on it.
# QUICK_BUILD=1 (make demo): less time for the compiler. Bits do not depend on optimisation levels.
BASE  = -std=c17 $(if $(QUICK_BUILD),-O1,-O2 -g) -ffp-contract=off -fno-math-errno $(WARN) -D_GNU_SOURCE \
        $(if $(filter %/backend.c %/plugin.c tests/%,$<),-DDEVICE_ABI=$(ABI)) -I. -MMD -MP $(SANF)
# Libraries that read pictures and annotations.
DATA_LIBS := -lturbojpeg -lpng -lwebp -lexpat -lyaml
LINK  = $(CC) $(SANF) -g -o $@ $(filter %.o,$^) $(LDFLAGS) -lpthread

# Objects of a folder and of the folders inside it. worker/ contains the floors of the trainer, so for worker/ only its own files count.
objs = $(patsubst %.c,$(B)/%.o,$(wildcard $(1)/*.c $(if $(filter worker,$(1)),,$(1)/*/*.c $(1)/*/*/*.c)))
lib  = $(filter-out %/main.o,$(foreach d,$(1),$(call objs,$(d))))

PROTO   := $(call lib,proto)
TRAINER := $(addprefix worker/,train evidence checkpoint report models optim layers data eval mask gradients comm core)
WORKER  := $(call lib,worker worker/modes worker/predict worker/backend $(TRAINER))

.DEFAULT_GOAL := all
PROGRAMS := detd detctl detd-job detd-worker detd-launch
all: $(addprefix $(B)/,$(PROGRAMS)) plugin

include mk/cpu.mk mk/cuda.mk

# Programs are linked twice: as they are, and for a bundle, which brings its libraries along.
IN_BUNDLE := -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib'
$(B)/detd $(B)/bundle/detd: $(call objs,daemon) $(PROTO)
	$(LINK) -luv -ljansson -lsqlite3
$(B)/detctl $(B)/bundle/detctl: $(call objs,client) $(PROTO)
	$(LINK) -ljansson -lsqlite3 -lm
$(B)/detd-job $(B)/bundle/detd-job: $(call objs,supervisor) $(PROTO)
	$(LINK) -luv -ljansson
# detd-launch runs as root: it is linked with libc alone.
$(B)/detd-launch $(B)/bundle/detd-launch: $(call objs,launch) $(patsubst %,$(B)/proto/%.o,err tier $(addprefix host/,folder lock output passed sha256 start tasks tell))
	$(LINK)
$(B)/detd-worker $(B)/bundle/detd-worker: $(B)/worker/main.o $(WORKER) $(CPU) $(PROTO)
	$(LINK) -ljansson $(DATA_LIBS) -lm -ldl
$(PROGRAMS:%=$(B)/bundle/%): LDFLAGS += $(IN_BUNDLE)
$(PROGRAMS:%=$(B)/bundle/%): | $(B)/bundle
$(B)/bundle:
	@mkdir -p $@

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -c -o $@ $<
# -MMD does not see files that are embedded with .incbin.
$(B)/daemon/store/schema.o: $(wildcard schema/*.sql)
# gcc vectorises the plain loop that folds gradients only at -O3.
$(B)/worker/core/tree.o: CFLAGS += -O3

# ---- the two commands of README ----

# Builds everything and runs every test (mk/check.mk).
check: deps
	+@$(PART) check-parts $(BENCH) $(if $(NVCC),$(B)/nvcc_bodies.o)
	@tests/harness/run.sh $(B) $(call IN_ORDER,$(TESTS) $(SIM) $(RUN_E2E)) $(SCANS) tests/harness/run_self.sh tests/harness/abi.sh \
	    tests/harness/plain_self.py tests/unit/python/test_detd.py tests/gpu/gpu_self.sh $(LEFT_OUT)

# Uses the programs of $(B) if they are built. Otherwise it builds only the parts that the demo needs, in less time: the
# CPU device for this machine, and the CUDA device if a GPU is here.
DEMO_ISA  = $(or $(if $(shell grep -m 1 -w avx512vl /proc/cpuinfo),avx512),$(if $(shell grep -m 1 -w avx2 /proc/cpuinfo),avx2),generic)
DEMO_B    = $(if $(wildcard $(B)/detd-worker),$(B),$(B)/quick)
demo:
	+@$(PART) DEPS="$(DEPS_DEMO)" deps
	+@$(PART) B=$(DEMO_B) $(if $(filter %/quick,$(DEMO_B)),QUICK_BUILD=1 ISAS=$(DEMO_ISA) $(if $(wildcard /dev/nvidiactl),,NVCC=)) all
	@tests/demo/demo.sh $(DEMO_B) $(B)/demo
.PHONY: check demo

# The rules of tests take time to read, so they are read only for goals that need them.
QUICK := all demo deps install uninstall bundle clean help lines abi plugin $(addprefix $(B)/,$(PROGRAMS))
ifneq ($(filter-out $(QUICK),$(or $(MAKECMDGOALS),all)),)
include mk/tests.mk mk/check.mk mk/programs.mk mk/lint.mk
-include $(shell find $(B) -name '*.d' ! -path '$(B)/quick/*' 2>/dev/null)
else
include mk/lint.mk
-include $(shell find $(B) -name '*.d' ! -path '$(B)/tests/*' ! -path '$(B)/emu/*' ! -path '$(B)/msan/*' ! -path '$(B)/quick/*' 2>/dev/null)
endif
include mk/install.mk mk/help.mk
