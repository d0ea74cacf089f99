# SPDX-License-Identifier: Apache-2.0 # mk/programs.mk - training programs of other people under detd: PyTorch and
# Lightning run as jobs.

# Debian's PyTorch, which has no CUDA, and the packages that Lightning needs. The rest comes from PyPI, without what it
# depends on: pip takes Debian's version of PyTorch for an unfinished one, and would install another of 5 GB.
DEPS_PROGRAMS     := python3-venv python3-torch python3-tqdm python3-packaging python3-fsspec python3-yaml
DEPS_PROGRAMS_PIP := pytorch-lightning==2.2.5 torchmetrics==1.4.3 lightning-utilities==0.11.9
PROGRAMS_VENV     ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/detd/programs
PROGRAMS_DONE     := $(PROGRAMS_VENV)/$(subst ==,-,$(subst $(empty) ,_,$(strip $(DEPS_PROGRAMS_PIP))))

deps-programs:
	+@$(PART) DEPS="$(DEPS_PROGRAMS)" deps
	@[ -e '$(PROGRAMS_DONE)' ] || { rm -rf '$(PROGRAMS_VENV)' && \
	    /usr/bin/python3 -m venv --system-site-packages '$(PROGRAMS_VENV)' && \
	    '$(PROGRAMS_VENV)/bin/pip' install -q --disable-pip-version-check --no-deps $(DEPS_PROGRAMS_PIP) && touch '$(PROGRAMS_DONE)'; }

check-programs: deps deps-programs
	+@$(PART) all
	@DETD_PROGRAMS_PYTHON='$(PROGRAMS_VENV)/bin/python' tests/harness/run.sh $(B) $(sort $(shell find tests/programs -perm -100 -name '*.py'))
.PHONY: deps-programs check-programs
