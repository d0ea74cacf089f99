# SPDX-License-Identifier: Apache-2.0 # mk/check.mk - rules that run the tests, and rules that search further.

# Executable files of tests/e2e are tests, other .py files there are parts of them. rank.py is a trainer.
E2E      ?= $(filter-out %/rank.py,$(sort $(shell find tests/e2e tests/e2e/hostile -maxdepth 1 -perm -100 -name "*.??"))) \
            tests/bench/smoke.sh tests/bench/smoke_gpu.sh
# Scans look at code instead of running it.
SCANS    := $(filter-out tests/gpu/cuda_msan.sh,$(wildcard tests/gpu/cuda_*.sh)) tests/harness/layers.py tests/search/planted.sh
# The longest tests start first. A name that is missing here costs time only.
SLOW     := $(addprefix tests/,search/prove/short search/prove/planted e2e/bits e2e/cuda_train e2e/sparse e2e/launch search/learn/road bench/smoke bench/smoke_gpu) \
            $(addprefix tests/e2e/,daemon_jobs ranks daemon_crowd depth torchvision detctl_node detctl super_job super_train gpus) tests/gpu/cuda_msan
SLOW     := $(addsuffix .sh,$(SLOW)) $(addsuffix .py,$(SLOW)) \
            $(addprefix $(B)/tests/,stand/sim/sim golden/test_yolov3 device/test_conv device/test_conv_bf16)
IN_ORDER  = $(foreach t,$(SLOW),$(filter $(t),$(1))) $(filter-out $(SLOW),$(1))
# Tests that cannot run in this build are named with the reason, as words for tests/harness/run.sh. SAN=thread makes training too slow for the end-to-end
# tests; they run plain and with address,undefined.
RUN_E2E   = $(if $(findstring thread,$(SAN)),,$(E2E))
LEFT_OUT  = $(patsubst %.c,'%=skip:no headers of the CUDA libraries here',$(filter-out $(TEST_SRC),$(TEST_ALL))) \
            $(patsubst %,'%=skip:the thread sanitizer is too slow for jobs',$(filter-out $(RUN_E2E),$(E2E)))
CHECK_TOO += $(if $(PLUGIN),$(patsubst cuda/%.cu,$(B)/cuda/%.ptx,$(wildcard cuda/*.cu)))
check-parts: all tests $(SIM) $(CHECK_TOO)

# The same tests with more rounds, seeds and shapes. With LONG=1 those that take longest too, the kernels under another
# sanitizer among them: tests see TEST_LONG=2.
SEARCHES := $(SIM) $(if $(LONG),tests/gpu/cuda_msan.sh) \
            $(filter %/test_cuda_plans %/test_cuda_plans_rcnn %/test_cuda_plans_depth %/test_repeat $(B)/tests/fuzz/%,$(TESTS)) \
            $(filter %/ranks.py %/bits.py %/order.py %/month.py %/sparse.py,$(RUN_E2E)) \
            $(if $(SAN),,tests/fuzz/short.sh $(addprefix tests/search/,prove/short.sh prove/planted.sh $(if $(LONG),learn/road.sh))) \
            $(if $(findstring thread,$(SAN)),,tests/search/torture/torture.sh)
check-long: deps
	+@$(PART) check-parts
	@TEST_LONG=$(if $(LONG),2,1) DETD_FUZZ_ROUNDS=20000 DETD_TEST_REPEATS=20 RANKS_SEED=2 tests/harness/run.sh $(B) $(call IN_ORDER,$(SEARCHES))

# libFuzzer on each parser; it needs clang.
fuzz:
	@tests/fuzz/run.sh $(or $(TARGET),$(FUZZ)) -- $(or $(SECONDS),60)

# Kills every process, fills disks and turns clocks at random while jobs of three daemons run, one of them with a hostile user. SEED= draws the same again.
# Takes about SECONDS, and the time that the jobs need to end. Before that, a program of the user is killed 100 times, in some five minutes.
torture: deps
	+@$(PART) all
	@DETD_BUILD=$(abspath $(B)) KILLS=100 $(addprefix SEED=,$(SEED)) python3 tests/e2e/programs.py kills
	@DETD_BUILD=$(abspath $(B)) SECONDS_OF_TORTURE=$(or $(SECONDS),600) $(addprefix SEED=,$(SEED)) python3 tests/search/torture/torture.py

# Are a job's bits a function of its spec and data alone? N runs of each cell, about two hours with the default. ONLY=cells or models, separated by commas.
# Report: $(B)/prove.txt.
N ?= 59
prove: deps
	+@$(PART) all $(TOY_WORKER) $(B)/emu/libdetd-cuda.so $(B)/emu/detd-worker
	@python3 tests/search/prove/prove.py $(B) --runs $(N) $(if $(ONLY),--only '$(ONLY)')

# Draws N=60 faults of one line, puts each into a copy of the tree and counts how many the tests notice. SEED= draws the same again; ONLY=folders or files.
# At most 40 minutes on two idle cores.
mutants: deps
	@python3 tests/search/mutants/run.py $(if $(filter command% env%,$(origin N)),--n $(N)) $(addprefix --seed ,$(SEED)) $(ONLY)

# Tests that need a GPU. The build may also be carried to a machine with one (pack-gpu; BCCD=FOLDER adds that data set, NCCL=FOLDER that library):
# tests/gpu.sh and tests/bench/bench_gpu.py take its folder. tests/gpu.sh explains GPU_PARTS and DETD_DATA, bench_gpu.py GPU_BENCH.
check-gpu: all tests $(B)/tests/bench/bench_link $(PLUGIN:$(B)/%=$(B)/tests/bench/%)
	@$(if $(PLUGIN),tests/gpu.sh $(B),echo 'check-gpu: $(if $(NVCC),$(NO_CUDA),there is no nvcc)' >&2; exit 1)
pack-gpu: all tests $(BENCH)
	@tests/gpu/gpu_pack.sh $(B) "$(BCCD)" "$(NCCL)"
bench-gpu: all $(BENCH) $(PLUGIN:$(B)/%=$(B)/tests/bench/%)
	@python3 tests/bench/bench_gpu.py $(B) $(GPU_BENCH)
bench: all
	+@$(PART) $(BENCH)
	@tests/bench/bench.sh $(B)

# Which file may include which, circles of calls, names that libraries have too.
layers: all
	@DETD_BUILD=$(B) tests/harness/layers.py

# Both commands of README in a bare Debian root of its own, where a package that DEPS lacks is missed. Needs root and debootstrap. SUITE=trixie: Debian 13.
check-fresh:
	@FRESH_SUITE=$(or $(SUITE),bookworm) tests/harness/fresh.sh
.PHONY: check-parts check-long fuzz torture prove mutants check-gpu pack-gpu bench-gpu bench layers check-fresh
