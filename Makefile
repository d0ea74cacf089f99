# SPDX-License-Identifier: Apache-2.0 # detd. `make demo` and `make check` need nothing but this file on a fresh Debian 12 or 13; `make help` lists the rest.
SHELL  := /bin/bash
SAN    ?=
comma  := ,
B      ?= build$(if $(SAN),-$(subst $(comma),-,$(SAN)))
CC     := gcc
PREFIX ?= $(HOME)/.local
# All cores, where nobody says -j. Several goals keep their order: each of them takes all cores by itself.
CORES := -j$(shell nproc)
ifeq ($(MAKELEVEL)$(word 2,$(MAKECMDGOALS)),0)
MAKEFLAGS += $(CORES)
CORES :=
endif

# ---- the one list of Debian packages (make deps) ----
DEPS := build-essential pkg-config libuv1-dev libjansson-dev libsqlite3-dev libturbojpeg0-dev libpng-dev libexpat1-dev libyaml-dev libwebp-dev libcmocka-dev \
        sqlite3 python3 valgrind clang-format clang-tidy cppcheck shellcheck

# WERROR=1, as CI has it: a warning is an error. A user's compiler may be newer than ours and know more of them.
WERROR ?=
WARN := -Wall -Wextra $(if $(WERROR),-Werror) -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
SANF := $(if $(SAN),-fsanitize=$(SAN) -fno-sanitize-recover=all -fno-omit-frame-pointer)
# The number of the interface between trainer and plugin: of the text of all its headers (worker/comm/abi.h).
ABI  := $(shell d=$$($(CC) -I. -MM worker/comm/abi.h 2>/dev/null) && cat $$(sed 's/^[^:]*://; s/\\$$//' <<<"$$d") | sha256sum | sed 's/^\(.\{8\}\).*/0x\1u/')
# Only who includes worker/comm/abi.h reads the number: all else is compiled alike whatever it is.
BASE  = -std=c17 -O2 -g -ffp-contract=off -fno-math-errno $(WARN) -D_GNU_SOURCE $(if $(filter %/backend.c %/plugin.c tests/%,$<),-DDEVICE_ABI=$(ABI)) -I. -MMD -MP $(SANF)
# What reads pictures and annotations.
DATA_LIBS := -lturbojpeg -lpng -lwebp -lexpat -lyaml
LINK  = $(CC) $(SANF) -g -o $@ $(filter %.o,$^) $(LDFLAGS) -lpthread

# A folder's objects, and those of the folders inside it; of worker/, which has all floors of the trainer in it, its own alone.
objs = $(patsubst %.c,$(B)/%.o,$(wildcard $(1)/*.c $(if $(filter worker,$(1)),,$(1)/*/*.c $(1)/*/*/*.c)))
lib  = $(filter-out %/main.o,$(foreach d,$(1),$(call objs,$(d))))

PROTO  := $(call lib,proto)
TRAINER := $(addprefix worker/,train evidence checkpoint report models optim layers data eval mask gradients comm core)
WORKER  := $(call lib,worker worker/modes worker/predict worker/backend $(TRAINER))

# ---- the CPU device: one source, one object per ISA, its only symbol cpu_backend_<isa>. ISAS="avx2 generic" builds fewer, which is quicker; the
# first then answers for those left out, as all give the same bits ----
ALL_ISAS     := avx512 avx2 generic
ISAS         := $(ALL_ISAS)
ARCH_avx512  := -march=x86-64-v4 -mprefer-vector-width=512
ARCH_avx2    := -march=x86-64-v3
ARCH_generic := -march=x86-64
CPU_SRC      := $(wildcard worker/cpu/*.c)
# The unrolled kernels cost gcc minutes under a sanitizer at -O3; optimisation levels do not change the bits. Nobody asks for exceptions of arithmetic; without
# masked vectors, gcc would take numbers one by one wherever an operation that may raise one is only done for some of them.
CPU_OPT      := -fno-trapping-math $(if $(SAN),-O1 -fno-var-tracking $(if $(findstring undefined,$(SAN)),-fno-sanitize=object-size$(comma)pointer-overflow$(comma)null$(comma)alignment),-O3)
CPU          := $(ISAS:%=$(B)/cpu-%.o)

# ---- the CUDA device, where nvcc and the headers of its libraries are: a plugin, linked with none of these libraries ----
NVCC     ?= $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
TOOLKIT  := $(if $(NVCC),$(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC))))))
MACHINE  := $(shell uname -m)
CUDA_INC ?= $(wildcard $(TOOLKIT)/include $(TOOLKIT)/targets/$(MACHINE)-linux/include)
header    = $(wildcard $(addsuffix /$(1),$(CUDA_INC) /usr/include /usr/include/$(MACHINE)-linux-gnu))
NEW      := $(if $(TOOLKIT),$(findstring compute_100,$(shell $(NVCC) --list-gpu-arch 2>/dev/null)))
CUDA     := $(and $(NEW),$(call header,cudnn.h),$(call header,cublasLt.h),$(call header,nccl.h))
NO_CUDA  := no CUDA device is built: $(if $(NEW),a header of cuDNN$(comma) cuBLASLt or NCCL is missing (CUDA_INC),nvcc is older than 12.8)
PLUGIN   := $(if $(CUDA),$(if $(SAN),,$(B)/libdetd-cuda.so))
# Code for A100, H100 and B200; other GPUs run that of the nearest older one of their family, or compile the PTX.
GENCODE  := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode 'arch=compute_100,code=[sm_100,compute_100]'
CUDA_OBJ := $(patsubst %,$(B)/%.o,$(basename $(wildcard cuda/*.c cuda/*.cu)))
CUDART   := $(addprefix -L,$(wildcard $(TOOLKIT)/lib64 $(TOOLKIT)/targets/$(MACHINE)-linux/lib)) -lcudart_static
# What the plugin takes from below, compiled once more for a shared library.
SHARED   := $(patsubst %.c,$(B)/shared/%.o,proto/host/driver.c proto/err.c worker/comm/comm.c)

.DEFAULT_GOAL := all
PROGRAMS := detd detctl detd-job detd-worker detd-launch
all: $(addprefix $(B)/,$(PROGRAMS)) $(PLUGIN)
	@$(if $(NVCC),$(if $(CUDA),:,echo '$(NO_CUDA)'),:)

# Linked twice: as they are, and for a bundle, where they bring their libraries along.
IN_BUNDLE := -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib'
$(B)/detd $(B)/bundle/detd: $(call objs,daemon) $(PROTO)
	$(LINK) -luv -ljansson -lsqlite3
$(B)/detctl $(B)/bundle/detctl: $(call objs,client) $(PROTO)
	$(LINK) -ljansson -lsqlite3 -lm
$(B)/detd-job $(B)/bundle/detd-job: $(call objs,supervisor) $(PROTO)
	$(LINK) -luv -ljansson
# Root runs it: nothing but libc is linked to it.
$(B)/detd-launch $(B)/bundle/detd-launch: $(call objs,launch) $(B)/proto/err.o $(patsubst %,$(B)/proto/host/%.o,folder lock output sha256 start tasks tell)
	$(LINK)
$(B)/detd-worker $(B)/bundle/detd-worker: $(B)/worker/main.o $(WORKER) $(CPU) $(PROTO)
	$(LINK) -ljansson $(DATA_LIBS) -lm -ldl
$(PROGRAMS:%=$(B)/bundle/%): LDFLAGS += $(IN_BUNDLE)
$(PROGRAMS:%=$(B)/bundle/%): | $(B)/bundle
$(B)/bundle:
	@mkdir -p $@

$(B)/cuda/%.o: cuda/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -fPIC $(addprefix -isystem ,$(CUDA_INC)) $(CFLAGS) -c -o $@ $<
# One compilation for both: tests/gpu/cuda_scan.sh reads the PTX, of all architectures.
$(B)/cuda/%.o $(B)/cuda/%.ptx: cuda/%.cu
	@rm -rf $(B)/cuda/$*.keep && mkdir -p $(B)/cuda/$*.keep
	$(NVCC) -std=c++17 -O3 -fmad=false $(if $(WERROR),-Werror all-warnings) --compress-mode=size $(GENCODE) -Xcompiler -fPIC,-Wall,-fno-threadsafe-statics,-fno-exceptions -I. -MMD -MP --keep --keep-dir $(B)/cuda/$*.keep -c -o $(B)/cuda/$*.o $<
	@cat $(B)/cuda/$*.keep/*.ptx >$(B)/cuda/$*.ptx && rm -r $(B)/cuda/$*.keep
$(B)/shared/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -fPIC $(CFLAGS) -c -o $@ $<
$(B)/libdetd-cuda.so: $(CUDA_OBJ) $(SHARED) cuda/plugin.map
	$(CC) -shared -g -o $@ $(filter %.o,$^) -Wl,--version-script=cuda/plugin.map -Wl,--exclude-libs,ALL -Wl,-z,defs \
	    $(CUDART) -ldl -lrt -lpthread -lm

$(B)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) $(CFLAGS) -c -o $@ $<

# What is embedded with .incbin, -MMD does not see.
$(B)/daemon/store/schema.o: $(wildcard schema/*.sql)
$(B)/cuda/plan_table.o: cuda/engines.txt
# Folding gradients is a plain loop that -O2 does not vectorise.
$(B)/worker/core/tree.o: CFLAGS += -O3

define ISA_RULES
$(B)/cpu-$(1)/%.o: worker/cpu/%.c
	@mkdir -p $$(@D)
	$(CC) $(BASE) $(CPU_OPT) $(ARCH_$(1)) -DISA_NAME='"$(1)"' $(CFLAGS) -c -o $$@ $$<
$(B)/cpu-$(1).o: $(CPU_SRC:worker/cpu/%.c=$(B)/cpu-$(1)/%.o)
	ld -r -o $$@ $(if $(filter $(1),$(firstword $(ISAS))),$(STANDS_FOR:%=--defsym=cpu_backend_%=detd_backend)) $$^
	objcopy --redefine-sym detd_backend=cpu_backend_$(1) --wildcard --keep-global-symbol='cpu_backend_*' $$@
endef
STANDS_FOR := $(filter-out $(ISAS),$(ALL_ISAS))
$(foreach i,$(ISAS),$(eval $(call ISA_RULES,$(i))))

# ---- tests: one cmocka program a file. Its first lines say what it is linked with: "uses: proto daemon" (folders),
# "trainer" = all floors of the worker from worker/train down, "cpu" = the CPU device, "cuda" = the CUDA device on an emulated GPU, "plans" = how that chooses algorithms, "plugin" = all of the CUDA device (these two
# need the libraries' headers) ----
uses      = $(if $(filter undefined,$(origin uses_$(1))),$(eval uses_$(1) := $(shell sed -n '1,3s|.*uses: \([a-z_/ ]*\).*|\1|p' $(1))))$(uses_$(1))
TEST_ALL := $(wildcard $(foreach deep,* */* */*/* */*/*/* */*/*/*/*,tests/unit/$(deep)/test_*.c) tests/device/test_*.c tests/golden/test_*.c tests/fuzz/test_*.c)
can_build = $(if $(filter plans,$(call uses,$(1))),$(if $(CUDA),$(1)),$(if $(filter plugin,$(call uses,$(1))),$(if $(PLUGIN),$(1)),$(1)))
TEST_SRC := $(foreach t,$(TEST_ALL),$(call can_build,$(t)))
PLANS    := $(patsubst %.c,$(B)/%.o,$(wildcard cuda/plan*.c cuda/cudnn*.c cuda/lt*.c cuda/libs*.c cuda/search.c))
BENCH_SRC := $(foreach t,$(wildcard tests/bench/bench_*.c),$(call can_build,$(t)))
TESTS    := $(TEST_SRC:%.c=$(B)/%)
parts     = $(call lib,$(patsubst trainer,$(TRAINER),$(filter-out cpu cuda plans plugin,$(1)))) $(if $(filter cpu,$(1)),$(CPU)) $(if $(filter cuda,$(1)),$(B)/cuda-emu.o) \
            $(if $(filter plans,$(1)),$(PLANS)) $(if $(filter plugin,$(1)),$(CUDA_OBJ))
define TEST_RULE
$(B)/$(1:.c=.o): CFLAGS += $(if $(filter plans plugin,$(call uses,$(1))),$(addprefix -isystem ,$(CUDA_INC)))
$(B)/$(1:.c=): LDFLAGS += $(if $(filter plugin,$(call uses,$(1))),$(CUDART))
$(B)/$(1:.c=): $(B)/$(1:.c=.o) $(call parts,$(call uses,$(1)))
	$$(LINK) -lcmocka -luv -ljansson -lsqlite3 $(DATA_LIBS) -lm -ldl
endef
$(foreach t,$(TEST_SRC) $(BENCH_SRC),$(eval $(call TEST_RULE,$(t))))
BENCH    := $(BENCH_SRC:%.c=$(B)/%)
# Parsers, fed by replay.c with the seeds of tests/fuzz and with changes of them; or by libFuzzer, which needs clang: `make fuzz`, in a build of its own.
FUZZ     := $(patsubst tests/fuzz/test_%.c,%,$(wildcard tests/fuzz/test_*.c))
$(FUZZ:%=$(B)/tests/fuzz/test_%): $(B)/tests/fuzz/replay.o
define FUZZ_RULE
$(B)/tests/fuzz/fuzz_$(1): $(B)/tests/fuzz/test_$(1).o $(B)/tests/fuzz/libfuzzer.o $(call parts,$(call uses,tests/fuzz/test_$(1).c))
	$$(LINK) -fsanitize=fuzzer -lcmocka -luv -ljansson -lsqlite3 $(DATA_LIBS) -lm -ldl
endef
$(foreach t,$(FUZZ),$(eval $(call FUZZ_RULE,$(t))))
fuzz:
	@tests/fuzz/run.sh $(or $(TARGET),$(FUZZ)) -- $(or $(SECONDS),60)
# Looks at a thread between its last check and its sleep.
$(B)/tests/unit/worker/core/test_threads: LDFLAGS += $(addprefix -Wl$(comma)--wrap=pthread_,mutex_lock cond_wait cond_signal cond_broadcast)
# Has a version more of the schema.
$(B)/tests/unit/daemon/store/test_store_open: LDFLAGS += -Wl,--wrap=schema_version,--wrap=schema_step
# Says whether the clock is kept.
$(B)/tests/unit/daemon/run/test_retention: LDFLAGS += -Wl,--wrap=clock_is_kept
tests: $(TESTS)

# The emulated GPU: cuda-emu.o, and emu/ with a worker and a plugin made of it.
-include tests/stand/emu/rules.mk
# What is proved beside our own networks.
-include tests/search/prove/rules.mk
# The simulator of the daemon.
-include tests/stand/sim/rules.mk

# Every kernel body must also be device code.
$(B)/nvcc_bodies.o: tests/device/nvcc_bodies.cu $(wildcard worker/kernels/*.h)
	@mkdir -p $(@D)
	$(NVCC) -std=c++17 -fmad=false $(if $(WERROR),-Werror all-warnings) -arch=sm_90 -I. -c -o $@ $<

# Scripts are executable; other .py files there are parts of them, but rank.py, a trainer.
E2E      ?= $(filter-out %/rank.py,$(sort $(shell find tests/e2e -maxdepth 1 -perm -100 -name "*.??"))) tests/bench/smoke.sh tests/bench/smoke_gpu.sh
# What looks at code instead of running it.
SCANS    := $(filter-out tests/gpu/cuda_msan.sh,$(wildcard tests/gpu/cuda_*.sh)) tests/harness/layers.sh tests/search/planted.sh
# Those that last longest, which start first; a name that is not here costs time, nothing else.
SLOW     := $(addprefix tests/,search/prove/short search/prove/planted e2e/bits e2e/cuda_train e2e/launch search/learn/road bench/smoke bench/smoke_gpu gpu/cuda_msan) \
            $(addprefix tests/e2e/,daemon_jobs ranks daemon_crowd depth torchvision detctl_node detctl super_job super_train gpus)
SLOW     := $(addsuffix .sh,$(SLOW)) $(addsuffix .py,$(SLOW)) $(B)/tests/stand/sim/sim $(B)/tests/golden/test_yolov3 $(B)/tests/device/test_conv $(B)/tests/device/test_conv_bf16
IN_ORDER  = $(foreach t,$(SLOW),$(filter $(t),$(1))) $(filter-out $(SLOW),$(1))
# What is named though it does not run, with the reason: words for tests/harness/run.sh. SAN=thread slows training too much for the end-to-end tests; they run
# plain and with address,undefined.
RUN_E2E   = $(if $(findstring thread,$(SAN)),,$(E2E))
LEFT_OUT  = $(patsubst %.c,'%=skip:no headers of the CUDA libraries here',$(filter-out $(TEST_SRC),$(TEST_ALL))) \
            $(patsubst %,'%=skip:the thread sanitizer is too slow for jobs',$(filter-out $(RUN_E2E),$(E2E)))
CHECK_TOO += $(if $(PLUGIN),$(patsubst cuda/%.cu,$(B)/cuda/%.ptx,$(wildcard cuda/*.cu)))
check-parts: all tests $(SIM) $(CHECK_TOO)
check: deps
	@$(MAKE) --no-print-directory $(CORES) B=$(B) SAN=$(SAN) check-parts $(BENCH) $(if $(NVCC),$(B)/nvcc_bodies.o)
	@tests/harness/run.sh $(B) $(call IN_ORDER,$(TESTS) $(SIM) $(RUN_E2E)) $(SCANS) tests/harness/run_self.sh tests/harness/abi.sh tests/gpu/gpu_self.sh $(LEFT_OUT)

# What searches rather than checks: the same tests with more rounds, seeds and shapes, and the kernels under another sanitizer.
LONG     := $(SIM) tests/gpu/cuda_msan.sh $(filter %/test_cuda_plans %/test_cuda_plans_rcnn %/test_cuda_plans_depth %/test_repeat $(B)/tests/fuzz/%,$(TESTS)) $(filter %/ranks.py %/bits.py %/order.py %/month.py,$(RUN_E2E)) $(if $(SAN),,tests/fuzz/short.sh tests/search/prove/short.sh tests/search/prove/planted.sh tests/search/learn/road.sh) $(if $(findstring thread,$(SAN)),,tests/search/torture/torture.sh)
check-long: deps
	@$(MAKE) --no-print-directory $(CORES) B=$(B) SAN=$(SAN) check-parts
	@TEST_LONG=1 DETD_FUZZ_ROUNDS=20000 DETD_TEST_REPEATS=20 RANKS_SEED=2 tests/harness/run.sh $(B) $(call IN_ORDER,$(LONG))

# Everything that can die does, at random, while jobs run; SEED= repeats what was drawn. Two daemons at once, about SECONDS and what it takes jobs to end.
torture: deps
	@$(MAKE) --no-print-directory $(CORES) B=$(B) SAN=$(SAN) all
	@DETD_BUILD=$(abspath $(B)) SECONDS_OF_TORTURE=$(or $(SECONDS),600) $(addprefix SEED=,$(SEED)) python3 tests/search/torture/torture.py

# The matrix: are a job's bits a function of its spec and data alone? N runs a cell, about two hours with the default; ONLY=cells or models, separated by
# commas. Report: $(B)/prove.txt.
N ?= 59
prove: deps
	@$(MAKE) --no-print-directory $(CORES) B=$(B) SAN=$(SAN) all $(TOY_WORKER) $(B)/emu/libdetd-cuda.so $(B)/emu/detd-worker
	@python3 tests/search/prove/prove.py $(B) --runs $(N) $(if $(ONLY),--only '$(ONLY)')

# N=60 one-line faults, drawn anew and put into copies of the tree one at a time: how many does a test notice? SEED= draws the same again; ONLY=folders or
# files. At most 40 minutes on two idle cores.
mutants: deps
	@python3 tests/search/mutants/run.py $(if $(filter command% env%,$(origin N)),--n $(N)) $(addprefix --seed ,$(SEED)) $(ONLY)

# What only a GPU can show; what was built here may also be carried to one (pack-gpu, with BCCD=FOLDER that data set, too, with NCCL=FOLDER that library): tests/gpu.sh and
# tests/bench/bench_gpu.py take the folder. GPU_PARTS and DETD_DATA as tests/gpu.sh says, GPU_BENCH as bench_gpu.py.
check-gpu: all tests $(B)/tests/bench/bench_link $(PLUGIN:$(B)/%=$(B)/tests/bench/%)
	@$(if $(PLUGIN),tests/gpu.sh $(B),echo 'check-gpu: $(if $(NVCC),$(NO_CUDA),there is no nvcc)' >&2; exit 1)
pack-gpu: all tests $(BENCH)
	@tests/gpu/gpu_pack.sh $(B) "$(BCCD)" "$(NCCL)"
bench-gpu: all $(BENCH) $(PLUGIN:$(B)/%=$(B)/tests/bench/%)
	@python3 tests/bench/bench_gpu.py $(B) $(GPU_BENCH)
# Programs look for it beside themselves.
$(B)/tests/bench/libdetd-cuda.so: $(B)/libdetd-cuda.so
	@mkdir -p $(@D)
	ln -f $< $@

abi:
	@echo $(ABI)

# The include direction, read off what the compiler wrote down.
layers: all
	@DETD_BUILD=$(B) tests/harness/layers.sh

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
	@$(MAKE) --no-print-directory $(CORES) B=$(B) all
	@tests/demo/demo.sh $(B)

bench: all
	@$(MAKE) --no-print-directory $(CORES) B=$(B) $(BENCH)
	@tests/bench/bench.sh $(B)

# ---- lint: every finding fails ----
SOURCES  = $(shell git ls-files '*.[ch]' $(if $(CUDA),,':!cuda'))
FORMATTED = $(sort $(SOURCES) $(wildcard cuda/*.[ch])) $(wildcard cuda/*.cu tests/stand/emu/*.cpp tests/device/*.cu)
SCRIPTS  = $(shell git ls-files .ci/run '*.sh')
# cppcheck takes all that one line declares, as the operations of a device (worker/cpu/cpu.h), for one function.
lint: deps
	clang-format --dry-run -Werror $(FORMATTED)
	cppcheck --quiet --error-exitcode=1 --std=c11 --language=c --enable=warning,performance,portability --inline-suppr \
	    --suppress=missingIncludeSystem --suppress=invalidPointerCast --suppress='ctunullpointer:worker/cpu/*' --suppress='ctunullpointer:worker/kernels/*' -D_GNU_SOURCE -D__x86_64__ -I. $(filter %.c,$(SOURCES))
	printf '%s\n' $(filter-out worker/cpu/% tests/%,$(filter %.c,$(SOURCES))) | xargs -P $$(nproc) -I{} clang-tidy --quiet --warnings-as-errors='*' {} -- -std=c17 -D_GNU_SOURCE -DDEVICE_ABI=$(ABI) -I. $(addprefix -isystem ,$(CUDA_INC)) 2>/dev/null
	printf '%s\n' $(filter-out worker/cpu/% tests/%,$(filter %.c,$(SOURCES))) | xargs -P $$(nproc) -n 1 $(CC) $(filter-out -MMD -MP,$(BASE)) -Werror -DDEVICE_ABI=$(ABI) $(addprefix -isystem ,$(CUDA_INC)) -fsyntax-only
	shellcheck -x $(SCRIPTS)
	! git grep -L 'SPDX-License-Identifier: Apache-2.0' -- '*.[ch]' '*.cu' '*.cpp' '*.sh' '*.py' '*.mk' '*.sql' | grep .

# ---- install ----
install: all
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/share/man/man1 $(DESTDIR)$(PREFIX)/share/man/man5 $(DESTDIR)$(PREFIX)/share/man/man8
	install -t $(DESTDIR)$(PREFIX)/bin $(PROGRAMS:%=$(B)/%)
	$(if $(PLUGIN),install -m 644 -t $(DESTDIR)$(PREFIX)/bin $(PLUGIN))
	for m in docs/man/*; do install -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man$${m##*.} $$m; done
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/detd systemd/detd.conf LICENSE docs/NOTICE
	install -d $(DESTDIR)$(PREFIX)/share/bash-completion/completions
	$(B)/detctl completion >$(DESTDIR)$(PREFIX)/share/bash-completion/completions/detctl
	install -d $(addprefix $(DESTDIR)$(PREFIX)/lib/,systemd/system sysusers.d tmpfiles.d)
	for u in detd detd-launch; do \
	    sed 's|/usr/local/bin/|$(PREFIX)/bin/|' systemd/$$u.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/$$u.service; \
	    install -m 644 systemd/$$u.socket $(DESTDIR)$(PREFIX)/lib/systemd/system/$$u.socket; done
	for k in sysusers tmpfiles; do install -m 644 systemd/detd.$$k $(DESTDIR)$(PREFIX)/lib/$$k.d/detd.conf; done
uninstall:
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/bin/,$(PROGRAMS) libdetd-cuda.so) $(DESTDIR)$(PREFIX)/share/bash-completion/completions/detctl $(addprefix $(DESTDIR)$(PREFIX)/share/doc/detd/,detd.conf LICENSE NOTICE)
	rm -f $(addprefix $(DESTDIR)$(PREFIX)/lib/,systemd/system/detd.service systemd/system/detd.socket systemd/system/detd-launch.service systemd/system/detd-launch.socket sysusers.d/detd.conf tmpfiles.d/detd.conf)
	for m in docs/man/*; do rm -f $(DESTDIR)$(PREFIX)/share/man/man$${m##*.}/$${m##*/}; done

# ---- a folder that runs elsewhere: programs, plugin, and the shared libraries that a bare host lacks (none of CUDA's own) ----
VERSION := $(shell sed -n 's/^.define DETD_VERSION "\(.*\)"/\1/p' proto/version.h)
BUNDLE  := $(B)/detd-bundle-$(VERSION)-$(MACHINE)
bundle: $(PROGRAMS:%=$(B)/bundle/%) $(PLUGIN)
	@mk/bundle.sh $(B)/bundle $(BUNDLE) $(PLUGIN)

# Both commands of README in a bare Debian root of its own, where a package missing from the list shows. Needs root and debootstrap.
# SUITE=trixie: Debian 13.
check-fresh:
	@FRESH_SUITE=$(or $(SUITE),bookworm) tests/harness/fresh.sh

clean:
	rm -rf build build-*

# Lines of each folder: product, tests, data.     COMMIT=c: of that commit
lines:
	@python3 tests/harness/lines.py $(COMMIT)

help:
	@echo 'make            the programs, in build/, and where nvcc is the CUDA device, libdetd-cuda.so     WERROR=1: a warning is an error'
	@echo 'make demo       install packages, build, train a small detector with two ranks under a private detd'
	@echo 'make check      install packages, build, run every test        SAN=address,undefined or SAN=thread: with sanitizers'
	@echo 'make check-long what searches further, up to half an hour'
	@echo 'make fuzz       libFuzzer, which needs clang, on each parser for SECONDS=60     TARGET=spool: on one'
	@echo 'make check-gpu  what only a GPU can show                          make bench-gpu: its speed beside PyTorch'
	@echo 'make pack-gpu   an archive for a machine with a GPU on which nothing can be built     BCCD=FOLDER: with that data set   NCCL=FOLDER: with that library'
	@echo 'make bench      speed, as ratios against a peer or a limit'
	@echo 'make mutants    draws one-line faults: how many would the tests notice?     N=60 SEED=n ONLY=worker/train'
	@echo 'make prove      jobs under everything that must not change a bit     N=59 runs a cell, ONLY=cells or models'
	@echo 'make torture    kills, stops, full disks and a wrong clock while jobs run     SECONDS=600 SEED=n'
	@echo 'make lint       warnings of gcc, clang-format, clang-tidy, cppcheck, shellcheck    make layers: include direction'
	@echo 'make bundle     build/detd-bundle-VERSION-MACHINE.tar.gz: runs from any folder of a host with glibc 2.36 or newer'
	@echo 'make lines      lines of each folder: product, tests, data             COMMIT=c: of that commit'
	@echo 'make install    PREFIX=$(PREFIX) DESTDIR=                         make uninstall'
	@echo 'make check-fresh  check and demo in a bare Debian 12 root (root, debootstrap)     SUITE=trixie: of Debian 13'

-include $(shell find $(B) -name '*.d' 2>/dev/null)
.PHONY: abi all lines tests check check-parts check-long fuzz torture prove mutants check-gpu pack-gpu layers deps demo bench bench-gpu bundle lint install uninstall check-fresh clean help
