#include "worker/data/read/frames/frames.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/read/frames/depth_truth.h"
#include "worker/data/read/frames/intrinsics.h"
#include "worker/data/read/frames/poses.h"
#include "worker/data/set/problems.h"
#include "worker/data/read/frames/views_make.h"

/* ---- one sequence ---- */

/* ---- all layouts ---- */

/* Reads all lines. Returns 0, or an error that does not belong to a single line. */
static int read_lines(const struct frames_layout *layout, void *of, struct split_list *list, struct views_maker *m,
                      struct problems *problems, struct err *err)
{
    struct split_line *line = malloc(sizeof *line);
    struct frame_spot *spot = malloc(sizeof *spot);
    int rc = line && spot ? 1 : err_set(err, -ENOMEM, "%s: no memory", list->path);

    while (rc > 0) {
        rc = split_list_next(list, line, err);
        if (rc == 0)
            break;
        if (rc == ERR_DATA) {
            problems_add(problems, "%s", err->msg);
            rc = 1;
            continue;
        }
        memset(spot, 0, sizeof *spot);
        spot->laser = -1;
        rc = layout->find(of, line, spot, err);
        if (rc > 0)
            problems_add(problems, "%s", err->msg);
        else if (rc == 0)
            rc = views_make_target(m, line, spot, problems, err) < 0 ? err->code : 1;
    }
    free(line);
    free(spot);
    return rc;
}

static const struct frames_layout *layout_of(const struct frames_options *opt)
{
    return opt->kitti ? &frames_kitti : views_file_there(opt, "sequences") ? &frames_sequences : &frames_single;
}

/* If the job names depth files, at least one must exist. */
static int depth_as_told(const struct frames_options *opt, struct dataset **set, struct err *err)
{
    char text[DEPTH_TRUTH_TEXT];

    if (!opt->depth_pattern || !depth_truth_nowhere(*set, text))
        return 0;
    dataset_free(*set);
    *set = NULL;
    return err_set(err, ERR_DATA, "data.depth_pattern: %s", text);
}

/* Notes keys of the job that only the layout of one sequence uses. */
static void note_unread(const struct frames_options *opt, const struct frames_layout *layout, struct problems *problems)
{
    static const char why[] = "the folder's own layout says that";

    if (layout != &frames_single && opt->frame_pattern)
        problems_note(problems, "data.frame_pattern has no effect: %s (%s)", why, opt->folder);
    if (layout != &frames_single && opt->depth_pattern)
        problems_note(problems, "data.depth_pattern has no effect: %s (%s)", why, opt->folder);
    if (layout == &frames_kitti && !isnan(opt->depth_unit_m))
        problems_note(problems, "data.depth_unit_m has no effect: %s (%s)", why, opt->folder);
}

int frames_read(const struct frames_options *opt, struct problems *problems, struct dataset **ret, struct err *err)
{
    const struct frames_layout *layout = layout_of(opt);
    struct views_maker *m = views_maker_new(opt, problems, err);
    struct split_list list;
    void *of = NULL;
    int rc;

    if (!m)
        return err->code;
    rc = split_list_open(&list, opt->list, opt->split ? opt->split : "train", err);
    if (rc >= 0)
        note_unread(opt, layout, problems);
    if (rc >= 0)
        rc = layout->open(opt, m, &of, err);
    if (rc >= 0)
        rc = read_lines(layout, of, &list, m, problems, err);
    if (rc >= 0)
        rc = views_make_finish(m, &list.file, layout->unit(of), ret, err);
    if (rc >= 0)
        rc = depth_as_told(opt, ret, err);
    if (of)
        layout->close(of);
    split_list_close(&list);
    views_maker_free(m);
    return rc;
}
