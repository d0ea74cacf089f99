#include "worker/train/scores.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "proto/record.h"
#include "worker/data/dataset.h"
#include "worker/eval/coco_ap.h"
#include "worker/eval/voc_ap.h"
#include "worker/report/report.h"

struct name {
    char text[RECORD_MAX_NAME + 1];
};

/* Cut at a character, so that the id stays whole; what would break a line of text is blank. */
static struct name class_metric(const struct dataset_class *c, bool with_id)
{
    static const char prefix[] = "AP50:";
    struct name n;
    char id[32] = "";
    size_t room = RECORD_MAX_NAME - (sizeof prefix - 1), len = strlen(c->name);

    if (with_id)
        room -= (size_t)snprintf(id, sizeof id, " #%lld", (long long)c->id);
    if (len > room)
        for (len = room; len > 0 && ((unsigned char)c->name[len] & 0xc0) == 0x80;)
            len--;
    snprintf(n.text, sizeof n.text, "%s%.*s%s", prefix, (int)len, c->name, id);
    for (char *p = n.text; *p; p++)
        if ((unsigned char)*p < 0x20)
            *p = ' ';
    return n;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(((const struct name *)a)->text, ((const struct name *)b)->text);
}

/* Spoils the order of the names. */
static bool any_twice(struct name *names, int n)
{
    bool twice = false;

    qsort(names, (size_t)n, sizeof *names, by_text);
    for (int i = 1; i < n; i++)
        twice = twice || by_text(&names[i - 1], &names[i]) == 0;
    return twice;
}

static void name_classes(const struct dataset *d, struct name *ret)
{
    bool with_id;

    for (int c = 0; c < d->nclasses; c++)
        ret[c] = class_metric(&d->classes[c], false);
    with_id = any_twice(ret, d->nclasses);
    for (int c = 0; c < d->nclasses; c++)
        ret[c] = class_metric(&d->classes[c], with_id);
}

/* Scores are -1 where there is nothing to score, as AP of large objects where all are small; users read that as null. */
static double score_or_nan(double score)
{
    return score < 0 ? NAN : score;
}

int scores_report(struct report *r, int64_t step, const struct dataset *d, const struct coco_ap *coco, const struct voc_ap *voc,
                  struct err *err)
{
    struct report_metric *m = calloc(COCO_STATS + 1 + (size_t)d->nclasses, sizeof *m);
    struct name *names = calloc((size_t)d->nclasses, sizeof *names);
    int n = 0, rc = m && names ? 0 : err_set(err, ERR_DEVICE, "out of memory: scores");

    if (rc >= 0) {
        name_classes(d, names);
        for (int i = 0; i < COCO_STATS; i++)
            m[n++] = (struct report_metric){ coco_stat_name[i], score_or_nan(coco->stat[i]) };
        m[n++] = (struct report_metric){ "voc_AP50", score_or_nan(voc->map) };
        for (int c = 0; c < d->nclasses; c++)
            m[n++] = (struct report_metric){ names[c].text, score_or_nan(coco->class_ap50[c]) };
        rc = report_eval(r, step, n, m, err);
    }
    free(names);
    free(m);
    return rc;
}
