# SPDX-License-Identifier: Apache-2.0 # mk/lint.mk - programs that read the source. Every finding fails.
SOURCES   = $(shell git ls-files '*.[ch]' $(if $(CUDA),,':!cuda'))
FORMATTED = $(shell git ls-files '*.[ch]' 'cuda/*.cu' 'tests/stand/emu/*.cpp' 'tests/device/*.cu')
SCRIPTS   = $(shell git ls-files .ci/run '*.sh')
PRODUCT   = $(filter-out worker/cpu/% tests/%,$(filter %.c,$(SOURCES)))
# cppcheck takes everything that one line declares for one function, for instance the operations of a device (worker/cpu/cpu.h).
lint: deps
	clang-format --dry-run -Werror $(FORMATTED)
	cppcheck --quiet --error-exitcode=1 --std=c11 --language=c --enable=warning,performance,portability --inline-suppr \
	    --suppress=missingIncludeSystem --suppress=invalidPointerCast --suppress='ctunullpointer:worker/cpu/*' \
	    --suppress='ctunullpointer:worker/kernels/*' -D_GNU_SOURCE -D__x86_64__ -I. $(filter %.c,$(SOURCES))
	printf '%s\n' $(PRODUCT) | xargs -P $$(nproc) -I{} clang-tidy --quiet --warnings-as-errors='*' {} -- -std=c17 -D_GNU_SOURCE \
	    -DDEVICE_ABI=$(ABI) -I. $(addprefix -isystem ,$(CUDA_INC)) 2>/dev/null
	printf '%s\n' $(PRODUCT) | xargs -P $$(nproc) -n 1 $(CC) $(filter-out -MMD -MP,$(BASE)) -Werror -DDEVICE_ABI=$(ABI) \
	    $(addprefix -isystem ,$(CUDA_INC)) -fsyntax-only
	shellcheck -x $(SCRIPTS)
	! git grep -L 'SPDX-License-Identifier: Apache-2.0' -- '*.[ch]' '*.cu' '*.cpp' '*.sh' '*.py' '*.mk' '*.sql' | grep .
	awk '{ sub(/ *\\$$/, ""); most = /^ *(#|\/\/|\/?\*) / ? 120 : 140 } \
	    length > most { print FILENAME ":" FNR ": over " most " columns"; bad = 1 } END { exit bad }' \
	    $(FORMATTED) $(SCRIPTS) $(shell git ls-files '*.py')
	python3 tests/harness/plain.py --check

# Lines of each folder: product, tests, data. COMMIT=c: of that commit.
lines:
	@python3 tests/harness/lines.py $(COMMIT)
.PHONY: lint lines
