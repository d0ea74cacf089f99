# SPDX-License-Identifier: Apache-2.0 # tests/stand/emu/rules.mk - the CUDA device on a GPU that the CPU plays (tests/stand/emu).
#   $(B)/cuda-emu.o           for tests that use "cuda": cuda_backend_emu(), the emulator's controls, and an emulated NCCL for ranks that are threads
#   $(B)/emu/detd-worker      a worker that finds $(B)/emu/libdetd-cuda.so, the same device as a plugin, beside itself: real jobs run on it
#   $(B)/msan/                the tests of the kernels under the memory sanitizer; tests/gpu/cuda_msan.sh builds and runs them
EMU_INC  := -Itests/stand/emu
EMU_CU   := $(patsubst %,$(B)/emu/%.o,$(wildcard cuda/*.cu))
EMU_C    := $(patsubst %.c,$(B)/emu/%.o,cuda/check.c cuda/device.c cuda/memory.c cuda/staging.c cuda/backend.c cuda/plan_key.c \
            $(filter-out tests/stand/emu/nccl.c,$(wildcard tests/stand/emu/*.c)))
EMU_NCCL := $(patsubst %.c,$(B)/emu/%.o,$(wildcard cuda/nccl*.c) tests/stand/emu/nccl.c)
EMU_WARN := -Wall $(if $(WERROR),-Werror) -Wno-unknown-pragmas -Wno-maybe-uninitialized
# The kernels use C++ only for templates and overloads; they use nothing of its library.
EMU_CXX  := -x c++ -std=c++17 -g -ffp-contract=off -fno-math-errno -fno-exceptions -fno-rtti -fno-threadsafe-statics \
            $(if $(findstring clang,$(CXX)),,-fno-gnu-unique) $(EMU_WARN) $(EMU_INC) -I. -MMD -MP
EMU_OPT  := $(if $(SAN),-O1,-O2)

$(B)/emu/cuda/backend.o: CFLAGS += -include tests/stand/emu/no_nccl.h
$(B)/emu/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(CXX) $(EMU_CXX) $(EMU_OPT) $(SANF) -fPIC -c -o $@ $<
$(B)/emu/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(EMU_INC) $(BASE) -fPIC $(CFLAGS) -c -o $@ $<

$(B)/cuda-emu.o: $(EMU_CU) $(EMU_C) $(EMU_NCCL) $(SHARED)
	ld -r --force-group-allocation -o $@ $^
	objcopy --redefine-sym detd_backend=cuda_backend_emu --wildcard --keep-global-symbol=cuda_backend_emu --keep-global-symbol='emu_*' \
	    --keep-global-symbol='nccl_*' $@

# Tests that use it may include its headers.
$(foreach t,$(TEST_SRC),$(if $(filter cuda,$(call uses,$(t))),$(eval $(B)/$(t:.c=.o): CFLAGS += $(EMU_INC) -DCUDA_EMU)))

# The emulator's own test: its objects and kernels, without the device. A caller of kernels sees the runtime's names.
EMU_PROBE := $(patsubst %,$(B)/emu/tests/stand/emu/%.o,block control fiber gpu memory queue stream probe.cu)
$(B)/tests/device/test_emu: $(EMU_PROBE)
$(B)/tests/device/test_emu.o: CFLAGS += $(EMU_INC)

# ---- a worker and its plugin ----
$(B)/emu/libdetd-cuda.so: $(EMU_CU) $(EMU_C) $(SHARED) cuda/plugin.map
	$(CC) $(SANF) -shared -g -o $@ $(filter %.o,$^) -Wl,--version-script=cuda/plugin.map $(if $(SAN),,-Wl$(comma)-z$(comma)defs) -lpthread -lm
$(B)/emu/detd-worker: $(B)/detd-worker
	@mkdir -p $(@D)
	ln -f $< $@
CHECK_TOO += $(B)/emu/libdetd-cuda.so $(B)/emu/detd-worker
