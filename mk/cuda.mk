# SPDX-License-Identifier: Apache-2.0 # mk/cuda.mk - the CUDA device: a plugin that does not link CUDA's libraries. It
# is built if nvcc and the headers of cuDNN, cuBLASLt and NCCL are found.
NVCC     ?= $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
TOOLKIT  := $(if $(NVCC),$(patsubst %/bin/,%,$(dir $(realpath $(shell command -v $(NVCC))))))
MACHINE  := $(shell uname -m)
CUDA_INC ?= $(wildcard $(TOOLKIT)/include $(TOOLKIT)/targets/$(MACHINE)-linux/include)
header    = $(wildcard $(addsuffix /$(1),$(CUDA_INC) /usr/include /usr/include/$(MACHINE)-linux-gnu))
NEW      := $(if $(TOOLKIT),$(findstring compute_100,$(shell $(NVCC) --list-gpu-arch 2>/dev/null)))
CUDA     := $(and $(NEW),$(call header,cudnn.h),$(call header,cublasLt.h),$(call header,nccl.h))
NO_CUDA  := no CUDA device is built: $(if $(NEW),a header of cuDNN$(comma) cuBLASLt or NCCL is missing (CUDA_INC),nvcc is older than 12.8)
PLUGIN   := $(if $(CUDA),$(if $(SAN),,$(B)/libdetd-cuda.so))
# Code for A100, H100 and B200. Other GPUs run the code of the nearest older one of their family, or compile the PTX.
GENCODE  := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 -gencode 'arch=compute_100,code=[sm_100,compute_100]'
CUDA_OBJ := $(patsubst %,$(B)/%.o,$(basename $(wildcard cuda/*.c cuda/*.cu)))
CUDART   := $(addprefix -L,$(wildcard $(TOOLKIT)/lib64 $(TOOLKIT)/targets/$(MACHINE)-linux/lib)) -lcudart_static
# Files of the floors below that the plugin contains too, compiled once more for a shared library.
SHARED   := $(patsubst %.c,$(B)/shared/%.o,proto/host/driver.c proto/err.c proto/tier.c worker/comm/comm.c)

plugin: $(PLUGIN)
	@$(if $(NVCC),$(if $(CUDA),:,echo '$(NO_CUDA)'),:)

$(B)/cuda/%.o: cuda/%.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -fPIC $(addprefix -isystem ,$(CUDA_INC)) $(CFLAGS) -c -o $@ $<
# A single compilation makes both files. tests/gpu/cuda_scan.sh reads the PTX of all architectures.
$(B)/cuda/%.o $(B)/cuda/%.ptx: cuda/%.cu
	@rm -rf $(B)/cuda/$*.keep && mkdir -p $(B)/cuda/$*.keep
	$(NVCC) -std=c++17 -O3 -fmad=false $(if $(WERROR),-Werror all-warnings) --compress-mode=size $(GENCODE) \
	    -Xcompiler -fPIC,-Wall,-fno-threadsafe-statics,-fno-exceptions -I. -MMD -MP --keep --keep-dir $(B)/cuda/$*.keep -c -o $(B)/cuda/$*.o $<
	@cat $(B)/cuda/$*.keep/*.ptx >$(B)/cuda/$*.ptx && rm -r $(B)/cuda/$*.keep
$(B)/shared/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE) -fPIC $(CFLAGS) -c -o $@ $<
$(B)/libdetd-cuda.so: $(CUDA_OBJ) $(SHARED) cuda/plugin.map
	$(CC) -shared -g -o $@ $(filter %.o,$^) -Wl,--version-script=cuda/plugin.map -Wl,--exclude-libs,ALL -Wl,-z,defs \
	    $(CUDART) -ldl -lrt -lpthread -lm
# It is embedded with .incbin.
$(B)/cuda/plan_table.o: cuda/engines.txt

abi:
	@echo $(ABI)
.PHONY: plugin abi
