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

define ISA_RULES
$(B)/cpu-$(1)/%.o: worker/cpu/%.c
	@mkdir -p $$(@D)
	$(CC) $(BASE) -O3 $(ARCH_$(1)) -DISA_NAME='"$(1)"' $(CFLAGS) -c -o $$@ $$<
$(B)/cpu-$(1).o: $(CPU_SRC:worker/cpu/%.c=$(B)/cpu-$(1)/%.o)
	ld -r -o $$@ $$^
	objcopy --redefine-sym detd_backend=cpu_backend_$(1) --keep-global-symbol=cpu_backend_$(1) $$@
endef
$(foreach i,$(ISAS),$(eval $(call ISA_RULES,$(i))))

# ---- tests: one cmocka program a file. Its first lines say what it is linked with: "uses: proto daemon" (folders), "cpu" = the CPU device ----
TEST_SRC := $(wildcard tests/unit/test_*.c tests/device/test_*.c tests/golden/test_*.c)
TESTS    := $(TEST_SRC:%.c=$(B)/%)
uses      = $(shell sed -n '1,3s|.*uses: \([a-z_/ ]*\).*|\1|p' $(1))
define TEST_RULE
$(B)/$(1:.c=): $(B)/$(1:.c=.o) $(call lib,$(filter-out cpu,$(call uses,$(1)))) $(if $(filter cpu,$(call uses,$(1))),$(CPU))
	$$(LINK) -lcmocka -luv -ljansson -lsqlite3 -lturbojpeg -lpng -lm -ldl
endef
$(foreach t,$(TEST_SRC),$(eval $(call TEST_RULE,$(t))))
tests: $(TESTS)

-include $(shell find $(B) -name '*.d' 2>/dev/null)
.PHONY: all tests
