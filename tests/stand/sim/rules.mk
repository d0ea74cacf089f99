# SPDX-License-Identifier: Apache-2.0 # tests/stand/sim/rules.mk - the simulator of the daemon: it links the parts of
# detd that it runs as they are, and the table of detd-job, on a base of its own.
SIM_REAL := $(filter $(addprefix %/,after.o best.o bounds.o event.o gpu.o gpu_node.o ingest.o job.o jobs.o jobs_report.o kill.o label.o life.o removal.o report.o reserve.o run.o sched.o schema.o shares.o slots.o spent.o text.o turns.o usage.o user_share.o view.o why.o) $(B)/daemon/store/%, \
            $(call objs,daemon)) $(B)/supervisor/going.o $(filter-out $(B)/proto/host/gpulock.o $(B)/proto/host/passed.o,$(PROTO)) $(B)/emu/tests/stand/emu/fiber.o
SIM      := $(B)/tests/stand/sim/sim
$(SIM): LDFLAGS += $(addprefix -Wl$(comma)--wrap=,$(addprefix pthread_,create join cond_wait cond_timedwait cond_signal) sqlite3_open_v2 sqlite3_close malloc calloc realloc strdup)
$(SIM): $(call objs,tests/stand/sim) $(SIM_REAL)
	$(LINK) -ljansson -lsqlite3 -lm
