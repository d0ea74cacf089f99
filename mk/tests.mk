# SPDX-License-Identifier: Apache-2.0 # mk/tests.mk - how test programs are built: one cmocka program per file. Its first
# lines name the objects that it links: "uses: proto daemon" (folders with the folders inside them), or: "trainer" = all
# floors of the worker from worker/train down; "cpu" = the CPU device; "cuda" = the CUDA device on an emulated GPU;
# "plans" = how that device chooses algorithms; "plugin" = the whole CUDA device. The last two need the headers of CUDA's
# libraries.
TEST_ALL  := $(wildcard $(foreach deep,* */* */*/* */*/*/* */*/*/*/*,tests/unit/$(deep)/test_*.c) \
             tests/device/test_*.c tests/golden/test_*.c tests/fuzz/test_*.c)
BENCH_ALL := $(wildcard tests/bench/bench_*.c)
# FILE=word,word... of all files, read by one program
USES      := $(shell awk 'FNR <= 3 && match($$0, /uses: [a-z_\/ ]*/) {words = substr($$0, RSTART + 6, RLENGTH - 6); sub(/ +$$/, "", words); \
             gsub(/ /, ",", words); print FILENAME "=" words}' $(TEST_ALL) $(BENCH_ALL))
$(foreach u,$(USES),$(eval uses_$(subst =, := ,$(subst $(comma), ,$(u)))))
uses       = $(or $(uses_$(1)),$(error $(1): its first three lines have no "uses:"))
can_build  = $(if $(filter plans,$(call uses,$(1))),$(if $(CUDA),$(1)),$(if $(filter plugin,$(call uses,$(1))),$(if $(PLUGIN),$(1)),$(1)))
TEST_SRC  := $(foreach t,$(TEST_ALL),$(call can_build,$(t)))
BENCH_SRC := $(foreach t,$(BENCH_ALL),$(call can_build,$(t)))
TESTS     := $(TEST_SRC:%.c=$(B)/%)
BENCH     := $(BENCH_SRC:%.c=$(B)/%)
PLANS     := $(patsubst %.c,$(B)/%.o,$(wildcard cuda/plan*.c cuda/cudnn*.c cuda/lt*.c cuda/libs*.c cuda/search.c))
# lib_WORD: the objects that a word brings in, found once
objects_of = $(if $(filter undefined,$(origin lib_$(1))),$(eval lib_$(1) := $(call lib,$(1))))$(lib_$(1))
parts      = $(foreach word,$(patsubst trainer,$(TRAINER),$(filter-out cpu cuda plans plugin,$(1))),$(call objects_of,$(word))) \
             $(if $(filter cpu,$(1)),$(CPU)) $(if $(filter cuda,$(1)),$(B)/cuda-emu.o) \
             $(if $(filter plans,$(1)),$(PLANS)) $(if $(filter plugin,$(1)),$(CUDA_OBJ))
TEST_LINK := -lcmocka -luv -ljansson -lsqlite3 $(DATA_LIBS) -lm -ldl
define TEST_RULE
$(B)/$(1:.c=.o): CFLAGS += $(if $(filter plans plugin,$(call uses,$(1))),$(addprefix -isystem ,$(CUDA_INC)))
$(B)/$(1:.c=): LDFLAGS += $(if $(filter plugin,$(call uses,$(1))),$(CUDART))
$(B)/$(1:.c=): $(B)/$(1:.c=.o) $(call parts,$(call uses,$(1)))
	$$(LINK) $(TEST_LINK)
endef
$(foreach t,$(TEST_SRC) $(BENCH_SRC),$(eval $(call TEST_RULE,$(t))))
tests: $(TESTS)

# Parsers: replay.c feeds them the seeds of tests/fuzz and changed seeds. `make fuzz` lets libFuzzer feed them, in a build of its own with clang.
FUZZ := $(patsubst tests/fuzz/test_%.c,%,$(wildcard tests/fuzz/test_*.c))
$(FUZZ:%=$(B)/tests/fuzz/test_%): $(B)/tests/fuzz/replay.o
define FUZZ_RULE
$(B)/tests/fuzz/fuzz_$(1): $(B)/tests/fuzz/test_$(1).o $(B)/tests/fuzz/libfuzzer.o $(call parts,$(call uses,tests/fuzz/test_$(1).c))
	$$(LINK) -fsanitize=fuzzer $(TEST_LINK)
endef
$(foreach t,$(FUZZ),$(eval $(call FUZZ_RULE,$(t))))

# Tests that stand between the code and a library: a thread between its last check and its sleep, one more version of the schema, a clock.
$(B)/tests/unit/worker/core/test_threads: LDFLAGS += $(addprefix -Wl$(comma)--wrap=pthread_,mutex_lock cond_wait cond_signal cond_broadcast)
$(B)/tests/unit/daemon/store/test_store_open: LDFLAGS += -Wl,--wrap=schema_version,--wrap=schema_step
$(B)/tests/unit/daemon/run/test_retention: LDFLAGS += -Wl,--wrap=boot_s

# The emulated GPU (cuda-emu.o, and emu/ with a worker and a plugin), the worker with a toy model, the simulator of the daemon
include tests/stand/emu/rules.mk tests/search/prove/rules.mk tests/stand/sim/rules.mk

# Every kernel body must compile as device code too.
$(B)/nvcc_bodies.o: tests/device/nvcc_bodies.cu $(wildcard worker/kernels/*.h)
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -fmad=false $(if $(WERROR),-Werror all-warnings) -arch=sm_90 -I. -c -o $@ $<
# Bench programs look for the plugin in their own folder.
$(B)/tests/bench/libdetd-cuda.so: $(B)/libdetd-cuda.so
	@mkdir -p $(@D)
	ln -f $< $@
.PHONY: tests
