#include "worker/data/read/check.h" /* SPDX-License-Identifier: Apache-2.0 */

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "proto/err.h"
#include "worker/data/read/coco/coco.h"
#include "worker/data/read/frames/depth_truth.h"
#include "worker/data/image/exif.h"
#include "worker/data/read/foreign.h"
#include "worker/data/read/frames/frames.h"
#include "worker/data/image/image.h"
#include "worker/data/read/labels/labels.h"
#include "worker/data/read/likeness.h"
#include "worker/data/set/problems.h"
#include "worker/data/text/whole_file.h"

/* Threads take images one by one. Findings are stored with the image, so that the report has the order of the data
 * set. */
struct work {
    struct dataset *d;
    const struct check_options *opt;
    char **flaw; /* [nimages], NULL: good; malloc'ed, or `elsewhere` */
    atomic_int next;
    atomic_bool turned; /* some pictures were turned upright */
    pthread_mutex_t lock;
    struct err failure; /* not a fault of a file, e.g. no memory: all threads stop */
};

/* The mark of a picture that belongs to the other part of the split. */
static char elsewhere[] = "";

/* Equal bytes are always in the same part, and a larger fraction contains every smaller one. */
static bool is_here(const struct check_options *opt, struct hash128 hash)
{
    double place = (double)(hash_fold_u64(hash, hash_name("data.val.fraction")).lane[0] >> 11) * 0x1p-53;

    return opt->fraction <= 0 || (place < opt->fraction) == opt->of_fraction;
}

static int wrong_size(const struct image *img, const struct dataset_image *im, const char *path, bool upright, bool turned, bool frames,
                      struct err *err)
{
    const char *why = "";

    if (frames)
        return err_set(err, ERR_DATA, "%s is %d x %d pixels, but its sequence has frames of %d x %d", path, img->w, img->h, im->w, im->h);
    if (img->w == im->h && img->h == im->w)
        why = turned ? ": its size as it is stored" : upright ? "" : " (an EXIF orientation is not applied)";
    return err_set(err, ERR_DATA, "%s is %d x %d pixels%s, but the annotations say %d x %d%s", path, img->w, img->h,
                   turned ? " turned by its EXIF orientation" : "", im->w, im->h, why);
}

/* Returns 1 if the image is in the other part of the split. An unreadable file belongs to the part without of_fraction.
 * file is memory of the thread. */
static int check_image(struct work *job, int i, struct decoder *dec, struct whole_file *file, struct err *err)
{
    const bool upright = job->opt->upright;
    struct dataset *d = job->d;
    struct dataset_image *im = &d->images[i];
    char path[DATASET_MAX_PATH];
    struct image img;
    int rc, turned;

    if (strlen(d->folder) + 1 + strlen(im->file) >= sizeof path)
        return err_set(err, ERR_DATA, "%s: path too long", im->file);
    rc = whole_file_read(file, dataset_path(d, i, path), IMAGE_MAX_BYTES, err);
    if (rc < 0)
        return file_at_fault(rc) && job->opt->of_fraction ? 1 : rc;
    im->hash = hash_bytes(file->bytes, file->size, 0);
    if (!is_here(job->opt, im->hash))
        return 1;
    rc = image_decode(dec, path, file->bytes, file->size, &img, err);
    turned = rc >= 0 && upright ? image_upright(dec, path, &img, err) : 0;
    if (rc < 0 || turned < 0)
        return rc < 0 ? rc : turned;
    if (img.w != im->w || img.h != im->h)
        return wrong_size(&img, im, path, upright, turned > 0, d->views != NULL, err);
    im->orientation = exif_orientation(file->bytes, file->size);
    im->likeness = likeness_of(&img);
    if (turned > 0)
        atomic_store(&job->turned, true);
    im->size_bytes = (int64_t)img.size_bytes;
    im->mtime_ns = file->mtime_ns;
    return 0;
}

/* Checks the measured depth of a target and stores the facts of its file. */
static int check_depth(struct work *job, int i, struct depth_truth *truth, struct err *err)
{
    struct views *v = job->d->views;

    return truth && i < v->n && v->view[i].depth >= 0 ? depth_truth_look(truth, i, &v->files[v->view[i].depth], err) : 0;
}

static void give_up(struct work *job, const struct err *why)
{
    pthread_mutex_lock(&job->lock);
    if (!job->failure.code)
        job->failure = *why;
    pthread_mutex_unlock(&job->lock);
    atomic_store(&job->next, INT_MAX / 2);
}

static void *check_images(void *arg)
{
    struct work *job = arg;
    struct decoder *dec = decoder_new();
    struct depth_truth *truth = NULL;
    struct err err = { .code = -ENOMEM, .msg = "no memory to check images" };
    struct whole_file file = { 0 };
    int i, rc;

    if (!dec || (job->d->views && depth_truth_open(job->d, &truth, &err) < 0)) {
        give_up(job, &err);
        decoder_free(dec);
        return NULL;
    }
    while ((i = atomic_fetch_add(&job->next, 1)) < job->d->nimages) {
        if (job->opt->progress)
            atomic_store(&job->opt->progress->done, i);
        rc = check_image(job, i, dec, &file, &err);
        if (rc > 0)
            job->flaw[i] = elsewhere;
        else if (rc == 0)
            rc = check_depth(job, i, truth, &err);
        if (rc < 0 && file_at_fault(rc) && !(job->flaw[i] = strdup(err.msg)))
            rc = err_set(&err, -ENOMEM, "no memory to check images");
        if (rc < 0 && !file_at_fault(rc))
            give_up(job, &err);
    }
    decoder_free(dec);
    free(file.bytes);
    depth_truth_close(truth);
    return NULL;
}

static void run_threads(struct work *job, int threads)
{
    pthread_t id[256];
    int n = 0;

    /* threads that cannot start only cost time: this thread works, too */
    while (n < threads - 1 && n < 256 && pthread_create(&id[n], NULL, check_images, job) == 0)
        n++;
    check_images(job);
    while (n > 0)
        pthread_join(id[--n], NULL);
}

/* spare: frames that every target can do without; may be NULL. */
static void add_flaw(const struct dataset *d, int i, const char *flaw, const bool *spare, struct problems *problems)
{
    if (spare && spare[i])
        problems_note(problems, "%s; frames next to it are scored, but without losses", flaw);
    else if (d->views) /* a frame's file identifies it, and the flaw names that */
        problems_add(problems, "%s", flaw);
    else
        problems_add(problems, "image %lld: %s", (long long)d->images[i].id, flaw);
}

/* Leaves out images with a flaw, and their boxes. */
static void drop_images(struct dataset *d, char **flaw)
{
    int64_t boxes = 0, first, count;
    int kept = 0;

    d->max_boxes = 0;
    for (int i = 0; i < d->nimages; i++) {
        first = d->offset[i];
        count = d->offset[i + 1] - first;
        if (flaw[i]) {
            free(d->images[i].file);
            continue;
        }
        memmove(&d->boxes[boxes], &d->boxes[first], (size_t)count * sizeof *d->boxes);
        if (d->masks)
            memmove(&d->masks->ref[boxes], &d->masks->ref[first], (size_t)count * sizeof *d->masks->ref);
        d->images[kept] = d->images[i];
        d->offset[kept++] = boxes;
        boxes += count;
        d->max_boxes = count > d->max_boxes ? (int)count : d->max_boxes;
    }
    d->nimages = kept;
    d->offset[kept] = boxes;
}

/* Counts the clipped boxes of the remaining pictures; the reader counted all. */
static void count_clipped(struct dataset *d)
{
    d->clipped = 0;
    for (int64_t k = 0; k < d->offset[d->nimages]; k++) {
        const struct dataset_box *b = &d->boxes[k];

        d->clipped += b->told[0] != b->x || b->told[1] != b->y || b->told[2] != b->w || b->told[3] != b->h;
    }
}

/* The same for frames: targets with a flawed part are left out, then frames that no target needs. */
static int drop_frames(struct dataset *d, char **flaw, struct err *err)
{
    struct dataset_image *image = calloc((size_t)d->nimages + 1, sizeof *image);
    int32_t *place = malloc(((size_t)d->nimages + 1) * sizeof *place);
    int left;

    left = image && place ? views_drop(d->views, d->nimages, flaw, place) : -ENOMEM;
    if (left < 0) {
        free(image);
        free(place);
        return err_set(err, -ENOMEM, "%s: no memory", d->source);
    }
    for (int i = 0; i < d->nimages; i++) {
        if (place[i] < 0)
            free(d->images[i].file);
        else
            image[place[i]] = d->images[i];
    }
    for (int i = 0; i < left; i++)
        image[i].id = i;
    free(d->images);
    free(place);
    d->images = image;
    d->nimages = left;
    return 0;
}

/* Counts the flaws of all records. With data.on_bad=error a record that the network can do without is a note, not an
 * error. */
static int add_flaws(const struct work *job, struct problems *problems, struct err *err)
{
    const struct dataset *d = job->d;
    bool *spare = NULL;

    if (d->views && job->opt->on_bad == BAD_ERROR) {
        spare = calloc((size_t)d->nimages + 1, sizeof *spare);
        if (!spare)
            return err_set(err, -ENOMEM, "%s: no memory", d->source);
        views_spare(d->views, d->nimages, spare);
    }
    for (int i = 0; i < d->nimages; i++)
        if (job->flaw[i] && job->flaw[i] != elsewhere)
            add_flaw(d, i, job->flaw[i], spare, problems);
    free(spare);
    return 0;
}

static int check_files(struct dataset *d, const struct check_options *opt, struct problems *problems, struct err *err)
{
    struct work job = { .d = d, .opt = opt, .flaw = calloc((size_t)d->nimages + 1, sizeof *job.flaw) };
    int64_t before = problems->count;
    int n, rc = 0;

    if (!job.flaw)
        return err_set(err, -ENOMEM, "%s: no memory", d->source);
    if (opt->progress)
        atomic_store(&opt->progress->of, d->nimages);
    pthread_mutex_init(&job.lock, NULL);
    run_threads(&job, opt->threads);
    pthread_mutex_destroy(&job.lock);
    rc = add_flaws(&job, problems, err);
    if (rc == 0 && job.failure.code)
        rc = err_set(err, job.failure.code, "%s", job.failure.msg);
    else if (rc == 0 && problems->count > before && opt->on_bad == BAD_ERROR)
        rc = problems_refuse(problems, d->source, err);
    d->upright = atomic_load(&job.turned);
    n = d->nimages;
    if (rc == 0 && d->views)
        rc = drop_frames(d, job.flaw, err);
    else if (rc == 0)
        drop_images(d, job.flaw);
    if (rc == 0 && d->nimages < n && !d->views)
        count_clipped(d);
    for (int i = 0; i < n; i++)
        if (job.flaw[i] != elsewhere)
            free(job.flaw[i]);
    free(job.flaw);
    return rc;
}

static int no_images(const struct dataset *d, const struct check_options *opt, const struct problems *problems, struct err *err)
{
    if (!problems->count && opt->fraction > 0)
        return err_set(err, ERR_DATA, "%s: no image is in the %s part of data.val.fraction, %g", d->source,
                       opt->of_fraction ? "validation" : "training", opt->fraction);
    if (!problems->count && d->views && d->views->dropped)
        return err_set(err, ERR_DATA, "%s: no frame of %lld has all its neighbours", d->source, (long long)d->views->dropped);
    return problems->count ? problems_err(problems, d->source, err) : err_set(err, ERR_DATA, "%s: no images", d->source);
}

/* True if there is no image, or no box although labels were expected. */
static bool is_bare(const struct dataset *d, const struct problems *problems)
{
    return d->nimages == 0 || (d->offset[d->nimages] == 0 && (problems->count > 0 || d->unlabelled == d->nimages));
}

/* Looks for files of other tools: the annotations, the last file of labels, the folder of the pictures. Returns 0, or
 * ERR_DATA with the tool's name in err. */
static int tell_foreign(const struct check_options *opt, const struct dataset *d, struct problems *problems, struct err *err)
{
    int rc = foreign_tell(opt->annotations, problems, err);

    if (rc == 0 && d && d->nfiles > 0)
        rc = foreign_tell(d->files[d->nfiles - 1].path, problems, err);
    return rc == 0 && d && d->nimages > 0 ? foreign_tell(d->folder, problems, err) : rc;
}

static int read_any(const struct check_options *opt, enum bad_policy on_bad, struct problems *problems, struct dataset **ret,
                    struct err *err)
{
    const struct coco_options o = { opt->annotations, opt->images, on_bad, opt->masks, opt->upright, false };

    return opt->frames   ? frames_read(opt->frames, problems, ret, err)
           : opt->labels ? labels_read(opt->labels, problems, ret, err)
                         : coco_read(&o, problems, ret, err);
}

static int read_records(const struct check_options *opt, enum bad_policy on_bad, struct problems *problems, struct dataset **ret,
                        struct err *err)
{
    int64_t before = problems->count;
    int rc = read_any(opt, on_bad, problems, ret, err);
    bool bare = !opt->frames && (rc < 0 || is_bare(*ret, problems)), bad = problems->count > before && on_bad == BAD_ERROR;

    if (bare && tell_foreign(opt, rc < 0 ? NULL : *ret, problems, err) < 0) {
        if (rc >= 0)
            dataset_free(*ret);
        return err->code;
    }
    if (rc < 0 || !bad || (!opt->frames && !opt->labels))
        return rc;
    dataset_free(*ret);
    return problems_refuse(problems, opt->annotations, err);
}

/* Reports problems of records once, for the part without of_fraction; those of the other part are dropped. */
static int read_part(const struct check_options *opt, struct problems *problems, struct dataset **ret, struct err *err)
{
    struct problems *told = opt->of_fraction ? calloc(1, sizeof *told) : problems;
    int rc = told ? read_records(opt, BAD_SKIP, told, ret, err) : err_set(err, -ENOMEM, "%s: no memory", opt->annotations);

    if (told != problems)
        free(told);
    return rc;
}

int check_split(const struct check_options *opt, struct problems *problems, struct dataset **ret, struct err *err)
{
    struct dataset *d;
    /* under BAD_ERROR, too, all is read before the verdict, so that one check shows everything to repair */
    int rc = read_part(opt, problems, &d, err);

    if (rc < 0)
        return rc;
    rc = check_files(d, opt, problems, err);
    if (rc == 0 && opt->on_bad == BAD_ERROR && problems->count)
        rc = problems_refuse(problems, d->source, err);
    if (rc == 0 && d->nimages == 0)
        rc = no_images(d, opt, problems, err);
    if (rc < 0)
        dataset_free(d);
    else
        *ret = d;
    return rc;
}

int check_list(const struct check_options *opt, struct problems *problems, struct dataset **ret, struct err *err)
{
    struct dataset *d;
    int rc = opt->on_bad == BAD_SKIP || opt->fraction > 0 ? check_split(opt, problems, &d, err)
                                                          : read_records(opt, opt->on_bad, problems, &d, err);

    if (rc >= 0 && d->nimages == 0) {
        rc = no_images(d, opt, problems, err);
        dataset_free(d);
    }
    if (rc >= 0)
        *ret = d;
    return rc;
}
