# SPDX-License-Identifier: Apache-2.0 # mk/cpu.mk - the CPU device: one source, one object per instruction set (ISA). Each
# object exports only cpu_backend_<isa>. ISAS="avx2 generic" builds fewer, which is quicker. The first ISA then stands in
# for the missing ones, since all give the same bits.
ALL_ISAS     := avx512 avx2 generic
ISAS         := $(ALL_ISAS)
ARCH_avx512  := -march=x86-64-v4 -mprefer-vector-width=512
ARCH_avx2    := -march=x86-64-v3
ARCH_generic := -march=x86-64
CPU_SRC      := $(wildcard worker/cpu/*.c)
# Under a sanitizer the unrolled kernels cost gcc minutes at -O3; optimisation levels do not change the bits. The kernels never read floating-point
# exceptions; without -fno-trapping-math gcc does not vectorise conditional operations where masked vectors are missing.
CPU_OPT      := -fno-trapping-math $(if $(SAN),-O1 -fno-var-tracking $(if $(findstring undefined,$(SAN)),\
                -fno-sanitize=object-size$(comma)pointer-overflow$(comma)null$(comma)alignment),-O3)
CPU          := $(ISAS:%=$(B)/cpu-%.o)
STANDS_FOR   := $(filter-out $(ISAS),$(ALL_ISAS))

define ISA_RULES
$(B)/cpu-$(1)/%.o: worker/cpu/%.c
	@mkdir -p $$(@D)
	$(CC) $(BASE) $(CPU_OPT) $(ARCH_$(1)) -DISA_NAME='"$(1)"' $(CFLAGS) -c -o $$@ $$<
$(B)/cpu-$(1).o: $(CPU_SRC:worker/cpu/%.c=$(B)/cpu-$(1)/%.o)
	ld -r -o $$@ $(if $(filter $(1),$(firstword $(ISAS))),$(STANDS_FOR:%=--defsym=cpu_backend_%=detd_backend)) $$^
	objcopy --redefine-sym detd_backend=cpu_backend_$(1) --wildcard --keep-global-symbol='cpu_backend_*' $$@
endef
$(foreach i,$(ISAS),$(eval $(call ISA_RULES,$(i))))
