# SPDX-License-Identifier: Apache-2.0 # The worker of a later version, as far as job keys go: their table has one more row, whose default is not its neutral value. It resumes
# what lies here, see tests/e2e/resume.sh. Only what sees the table is compiled again, and quickly: optimisation changes no bits.
LATER := $(B)/later
LATER_ROW := X(train_later, "train.later", REAL, "0.5", "0", "", 0, 1, "", "", "a key of a later version")
LATER_OBJ := $(patsubst $(B)/%,$(LATER)/%,$(B)/worker/main.o $(filter $(B)/proto/jobspec% $(B)/worker/%,$(call lib,proto worker $(addprefix worker/,train predict checkpoint evidence optim models) $(call INSIDE,models data))))
SAME_OBJ  := $(filter-out $(LATER_OBJ:$(LATER)/%=$(B)/%),$(PROTO) $(WORKER))
$(LATER)/proto/jobspec.h: proto/jobspec.h tests/checkpoints/rules.mk
	@mkdir -p $(@D)
	sed 's|^#define JOB_KEYS(X) .*|&\n$(LATER_ROW) \\|' $< >$@
$(LATER)/%.o: %.c $(LATER)/proto/jobspec.h
	@mkdir -p $(@D)
	$(CC) -iquote $(LATER) $(BASE) -O0 -g0 $(CFLAGS) -c -o $@ $<
$(LATER)/detd-worker: $(LATER_OBJ) $(SAME_OBJ) $(CPU)
	@! grep -l proto/jobspec.h $(SAME_OBJ:.o=.d)
	$(LINK) -ljansson $(DATA_LIBS) -lm -ldl
CHECK_TOO += $(LATER)/detd-worker
