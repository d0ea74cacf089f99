/* worker/train/trainer_impl.h - what the parts of the trainer share: setup.c opens and closes it, step.c makes a step, validate.c a validation,
 * save.c checkpoints, control.c words and tiers, trainer.c is the loop over them. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "proto/jobspec.h"
#include "worker/train/reduce.h"
#include "worker/train/report.h"
#include "worker/train/slots.h"
#include "worker/train/trainer.h"
#include "worker/train/window.h"

struct batch;
struct model_batch;

/* Words that act on all ranks: rank 0 sends one in a step's slots, it acts after the following step. */
struct order {
    enum report_word word; /* WORD_NONE: nothing */
    int64_t after;         /* the step it acts after */
};

/* What rank 0's slot words say. */
struct control_word {
    enum report_word word;
    uint64_t tier, step; /* of WORD_TIER */
};

enum tier { TIER_OFF, TIER_RERUN, TIER_WORLD };

struct tier_change {
    int64_t from; /* first step of the tier */
    enum tier tier;
};

struct trainer {
    const struct jobspec *spec;
    struct trainer_options opt;
    /* machine */
    struct device *dev, *side;
    struct comm *comm;
    struct report *report;
    struct progress *progress;
    /* model */
    struct model *model;
    struct arena *arena;
    struct tape *tape;
    struct reduce *reduce;
    struct slots *slots; /* a record: loss terms, then batch statistics of every normalisation */
    struct slots *sync;  /* SyncBN's exchanges inside a step; NULL without */
    float **momentum;    /* [nparams], NULL for running statistics */
    double *val_records; /* gathered buffer of validation losses, made at the first validation */
    int32_t *skip;       /* device memory: not 0 = the gradient is not finite, nothing is written */
    /* data */
    struct dataset *train, *val; /* val: NULL without validation */
    struct loader *loader, *val_loader;
    struct span shards; /* of this rank */
    /* the job's state */
    int64_t step;         /* completed */
    struct window window; /* open log window */
    double images_per_s;
    int64_t window_ns;           /* when the log window began */
    int64_t window_resumed;      /* images in it that an earlier attempt trained */
    double best;                 /* lowest validation loss so far, INFINITY before the first */
    int64_t best_step, val_step; /* of it; of the last validation */
    double val_loss;             /* of the last validation, NAN before the first */
    int64_t saved_step;          /* of the last checkpoint, -1: none */
    int64_t images_rank;         /* trained by this rank in this attempt */
    /* control */
    struct order order; /* on its way */
    struct tier_change tiers[REPORT_MAX_TIERS + 1];
    int ntiers;
    struct tier_change proposal; /* rank 0: from > 0 while a change is being agreed */
    enum report_word pending;    /* rank 0: read, not yet sent */
};

/* ---- setup.c ---- */
/* Opens everything up to the state a job starts from, the checkpoint loaded. On failure trainer_close() frees what there is. */
int trainer_open(struct trainer *t, const struct jobspec *spec, const struct trainer_options *opt, struct err *err);
void trainer_close(struct trainer *t);

/* ---- step.c ---- */
/* One optimizer step: all waves, reduction, update, window sums. ERR_NONFINITE names step, term and images. */
int trainer_step(struct trainer *t, struct err *err);
/* Rank 0 reports the open window as the losses up to t->step, all ranks start a new one. */
int trainer_log(struct trainer *t, struct err *err);

/* Rank 0: one loss record of the job's state as it is now. */
int trainer_report(struct trainer *t, const char *split, const struct window *w, double images_per_s, struct err *err);
/* Images and boxes of a wave -> device memory of the tape. */
int trainer_upload(struct trainer *t, const struct batch *b, struct model_batch *ret, struct err *err);

/* ---- validate.c ---- */
/* Losses and detections of the whole validation split; rank 0 scores and reports. */
int trainer_validate(struct trainer *t, struct err *err);

/* ---- save.c ---- */
int trainer_save(struct trainer *t, struct err *err);
/* Rank 0 picks the newest good checkpoint, all ranks load it. t->step stays 0 where there is none. */
int trainer_resume(struct trainer *t, struct err *err);

/* ---- control.c ---- */
/* Rank 0, before the slots of step t->step + 1 are sent: reads commands, agrees on tiers. *ret is what the slots carry. */
int control_poll(struct trainer *t, struct control_word *ret, struct err *err);
/* All ranks, after the slots: notes what they carried. */
void control_take(struct trainer *t, const struct control_word *word);
/* What is to be done now that step t->step is complete; WORD_NONE mostly. */
enum report_word control_due(struct trainer *t);
const char *tier_name(enum tier tier);
enum tier tier_of(const char *name);
/* Tier of a step. */
enum tier tier_at(const struct trainer *t, int64_t step);
