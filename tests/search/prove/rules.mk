# SPDX-License-Identifier: Apache-2.0 # A worker with the toy family of models, which make prove needs besides the
# programs.
TOY_WORKER := $(B)/prove/detd-worker
$(TOY_WORKER): $(B)/tests/search/prove/toy_worker.o $(WORKER) $(CPU) $(PROTO)
	@mkdir -p $(@D)
	$(LINK) -ljansson $(DATA_LIBS) -lm -ldl
CHECK_TOO += $(TOY_WORKER)
