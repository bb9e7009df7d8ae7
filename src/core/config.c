/* Settings: the one table, and how it is filled from the environment, a file, and MPI_Info entries. */
#include "core/config.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/collectives.h"
#include "core/config_text.h"
#include "core/log.h"
#include "hetmpi.h"

#define PREFIX "HETMPI_"
#define PREFIX_LENGTH (sizeof(PREFIX) - 1)

enum kind {
    KIND_SIZE,     /* size_t, low..high */
    KIND_RATE,     /* double, bytes/s */
    KIND_TIME,     /* double, seconds */
    KIND_INT,      /* int, low..high */
    KIND_BOOL,     /* bool, "1" or "0" */
    KIND_CHOICE,   /* int, index in the words of row.values */
    KIND_LABELS,   /* char[]: comma-separated words, none of them empty */
    KIND_VENDORS,  /* the same, each a vendor */
    KIND_NUMBERS,  /* the same, each a number */
    KIND_CALLS,    /* the same, each all, none or a collective, which may have a - in front */
    KIND_TEXT      /* char[]: anything */
};

struct setting {
    struct cfg_row row;
    enum kind kind;
    size_t offset, bytes;   /* of the field in struct cfg */
    int64_t low, high;
    const char *initial;    /* the default, as it would be written */
};

#define CALL_NAME(Name, name, ...) #name " "
#define CALLS COLL_COUNTED(CALL_NAME) "barrier"

#define FIELD(name) offsetof(struct cfg, name), sizeof(((struct cfg *)0)->name)
#define AGREE true
#define OWN false
#define COMM true
#define PROCESS false

/* The order is that of the listings, and of cfg_agree (which all ranks of a job share, being of one version). */
static const struct setting settings[] = {
    {{"ISLANDS", "auto, or one label a rank: n,n,a,a,n",
      "Which ranks form an island: by vendor and node, or ranks of the same label", AGREE, COMM},
     KIND_LABELS, FIELD(islands), 0, 0, "auto"},
    {{"WIRE", "auto mpi shm verbs", "What carries data between islands", AGREE, COMM},
     KIND_CHOICE, FIELD(wire), 0, 0, "auto"},
    {{"PROVIDER", "auto shm ipc nccl rccl mpi",
      "What does the collectives inside an island (nccl, rccl: not in this build)", AGREE, COMM},
     KIND_CHOICE, FIELD(provider), 0, 0, "auto"},
    {{"LEVELS", "auto 1 2",
      "Islands exchange directly (1), or those of a node join before anything crosses the network (2)", AGREE, COMM},
     KIND_CHOICE, FIELD(levels), 0, 0, "auto"},
    {{"RAILS", "auto, or names: mlx5_0,mlx5_1:2", "NICs (ports) of this rank that share its traffic over the verbs wire",
      OWN, COMM},
     KIND_LABELS, FIELD(rails), 0, 0, "auto"},
    {{"STRIPE", "bytes (K M G), at least 16K", "Smallest message that the verbs wire sends over several rails", OWN,
      COMM},
     KIND_SIZE, FIELD(stripe), 16384, INT64_MAX, "64K"},
    {{"ZERO_COPY", "bytes (K M G), 0: never",
      "Smallest message that NICs move between the ranks' own memory, where that can be registered", OWN, COMM},
     KIND_SIZE, FIELD(zero_copy), 0, INT64_MAX, "256K"},
    {{"QUEUE_DEPTH", "messages, 8 to 4096", "Small messages to one rank that the verbs wire has under way at once",
      AGREE, COMM},
     KIND_INT, FIELD(queue_depth), 8, 4096, "64"},
    {{"GID_INDEX", "index, -1: chosen", "Entry of the ports' GID tables; chosen: RoCE v2 with an IPv4 address, if any",
      OWN, PROCESS},
     KIND_INT, FIELD(gid_index), -1, 255, "-1"},
    {{"SERVICE_LEVEL", "0 to 15", "Service level of the verbs wire's packets", OWN, COMM},
     KIND_INT, FIELD(service_level), 0, 15, "0"},
    {{"TRAFFIC_CLASS", "0 to 255", "Traffic class of the verbs wire's packets (RoCE: DSCP and ECN bits)", OWN, COMM},
     KIND_INT, FIELD(traffic_class), 0, 255, "0"},
    {{"PKEY_INDEX", "index", "Entry of the ports' P_Key tables (InfiniBand partitions)", OWN, COMM},
     KIND_INT, FIELD(pkey_index), 0, 65535, "0"},
    {{"RETRY_COUNT", "0 to 6", "How often a NIC sends again what is not acknowledged, until the rail counts as lost",
      OWN, COMM},
     KIND_INT, FIELD(retry_count), 0, 6, "6"},
    {{"RAILS_LOST", "mpi error", "When a pair of ranks has no rail left: go on over MPI, or end with HETMPI_ERR_PEER",
      AGREE, COMM},
     KIND_CHOICE, FIELD(rails_lost), 0, 0, "mpi"},
    {{"RETRY_TIMEOUT", "1 to 31", "How long a NIC waits for that: 4.096 us times 2 to this power", OWN, COMM},
     KIND_INT, FIELD(retry_timeout), 1, 31, "14"},
    {{"CHUNK", "bytes (K M G), at least 1K; 0: by message size", "Size of a pipeline chunk", AGREE, COMM},
     KIND_SIZE, FIELD(chunk), 1024, INT64_MAX, "0"},
    {{"SMALL", "bytes (K), at most 16K", "Largest message that is exchanged whole in one step", AGREE, COMM},
     KIND_SIZE, FIELD(small), 0, 16384 /* CTL_SMALL_MAX */, "16K"},
    {{"EAGER", "bytes (K), at most 1M", "Largest message between two ranks that is sent before its receive is posted",
      AGREE, COMM},
     KIND_SIZE, FIELD(eager), 0, 1 << 20, "8K"},
    {{"STAGING", "bytes (K M G), at least 64K", "Staging memory that a communicator may take on a wire", AGREE, COMM},
     KIND_SIZE, FIELD(staging), 65536, INT64_MAX, "64M"},
    {{"MPI_PIECE", "bytes (K M G), 0: whole messages",
      "Pieces in which the mpi wire sends to other nodes: below what MPI asks the receiver for first", AGREE, COMM},
     KIND_SIZE, FIELD(mpi_piece), 0, INT_MAX, "56K"},
    {{"WINDOW", "chunks, 0: chosen", "Chunks of a collective in flight at once", AGREE, COMM},
     KIND_INT, FIELD(window), 0, 1024, "0"},
    {{"TIMEOUT", "seconds, or with a unit (us ms s), 0: none",
      "How long a wait may see nothing happen before it ends with HETMPI_ERR_TIMEOUT", OWN, COMM},
     KIND_TIME, FIELD(timeout), 0, 0, "0"},
    {{"CHECK", "1 0", "Find ranks that call different collectives, or with different arguments", AGREE, COMM},
     KIND_BOOL, FIELD(check), 0, 0, "1"},
    {{"WIRE_PRECISION", "element exact",
      "Partial sums of 8- and 16-bit floats between islands: in their own format, or as fp32", AGREE, COMM},
     KIND_CHOICE, FIELD(wire_precision), 0, 0, "element"},
    {{"SPIN", "polls, -1: by the number of ranks and cores", "Polls before a waiting thread yields its core",
      OWN, COMM},
     KIND_INT, FIELD(spin), -1, INT_MAX, "-1"},
    {{"PROGRESS", "auto thread wait", "Who drives collectives: a thread of their own, or whoever waits", OWN, PROCESS},
     KIND_CHOICE, FIELD(progress), 0, 0, "auto"},
    {{"DEVICE", "number, -1: rank on the node modulo devices", "Which device this rank uses", OWN, PROCESS},
     KIND_INT, FIELD(device), -1, INT_MAX, "-1"},
    {{"LOG", "error warn info debug trace", "What is told on stderr", OWN, PROCESS},
     KIND_CHOICE, FIELD(log), 0, 0, "warn"},
    {{"REPORT", "a file; %r in its name: the rank",
      "Where a timeout, a dead rank, a mismatch or a dump leaves its report as JSON", OWN, PROCESS},
     KIND_TEXT, FIELD(report), 0, 0, ""},
    {{"DUMP", "a signal: SIGUSR2, or a file: /tmp/ask",
      "What makes a waiting rank tell what all ranks do: this signal, or a change of this file", OWN, PROCESS},
     KIND_TEXT, FIELD(dump), 0, 0, ""},
    {{"SIM_VENDORS", "one a rank: nvidia,nvidia,amd (or cpu)", "Simulated device: vendor that each rank claims",
      AGREE, PROCESS},
     KIND_VENDORS, FIELD(sim_vendors), 0, 0, ""},
    {{"SIM_NODES", "one a rank: 0,0,1", "Simulated device: node that each rank claims to be on", AGREE, PROCESS},
     KIND_NUMBERS, FIELD(sim_nodes), 0, 0, ""},
    {{"SIM_BANDWIDTH", "bytes/s (K M G), 0: unlimited", "Simulated device: speed of its link to the host, each way",
      OWN, PROCESS},
     KIND_RATE, FIELD(sim_bandwidth), 0, 0, "0"},
    {{"SIM_PEER_BANDWIDTH", "bytes/s (K M G), 0: unlimited",
      "Simulated device: speed of its link to each device of the same vendor", OWN, PROCESS},
     KIND_RATE, FIELD(sim_peer_bandwidth), 0, 0, "0"},
    {{"SIM_LATENCY", "seconds, or with a unit (us ms s)", "Simulated device: time added to each copy and kernel",
      OWN, PROCESS},
     KIND_TIME, FIELD(sim_latency), 0, 0, "0"},
    {{"SIM_FAULT",
      "list of copy@N kernel@N alloc@N pin@N ipc@N stream@N slow@N:TIME, each with %RANK behind it for one rank only",
      "Simulated device: the N-th operation of a kind fails, or operations from the N-th on take TIME longer",
      OWN, PROCESS},
     KIND_TEXT, FIELD(sim_fault), 0, 0, ""},
    {{"PMPI", "list of all none " CALLS ", each name also with - in front: all,-barrier",
      "Which of a program's own MPI calls libhetmpi_pmpi runs on hetmpi", AGREE, PROCESS},
     KIND_CALLS, FIELD(pmpi), 0, 0, "all"},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

/* Where a value comes from, for messages. line 0: not from a file. */
struct source {
    enum cfg_origin origin;
    const char *file;
    int line;
};

static struct {
    pthread_mutex_t lock;
    enum { FRESH, LOADED, BROKEN } state;
    struct cfg cfg;
    enum cfg_origin origins[SETTINGS];
    char error[512];
} process = {.lock = PTHREAD_MUTEX_INITIALIZER};

extern char **environ;

/* "HETMPI_WIRE (environment)", "jobs.conf:3: WIRE", "info key wire". */
static const char *describe(const struct source *source, const char *name, char *text, size_t bytes)
{
    switch (source->origin) {
    case CFG_FILE:
        snprintf(text, bytes, "%s:%d: %s", source->file, source->line, name);
        break;
    case CFG_INFO:
        snprintf(text, bytes, "info key %s", name);
        for (char *c = text + strlen("info key "); *c; c++)
            *c = (char)tolower((unsigned char)*c);
        break;
    default:
        snprintf(text, bytes, "environment: " PREFIX "%s", name);
    }
    return text;
}

static bool parse_int(const char *text, int64_t low, int64_t high, int *value)
{
    char *end;
    long number;

    if (!isdigit((unsigned char)text[*text == '-']))
        return false;
    errno = 0;
    number = strtol(text, &end, 10);
    if (errno || *end || number < low || number > high)
        return false;
    *value = (int)number;
    return true;
}

static bool check_items(enum kind kind, const char *list)
{
    char item[256];
    int length = cfg_list_length(list), number;

    if (strpbrk(list, " \t"))
        return false;
    for (int i = 0; i < length; i++) {
        if (!cfg_list_item(list, i, item, sizeof(item)) || !*item)
            return false;
        if (kind == KIND_VENDORS && cfg_word_index("cpu nvidia amd", item) < 0)
            return false;
        if (kind == KIND_NUMBERS && !parse_int(item, 0, INT_MAX, &number))
            return false;
        if (kind == KIND_CALLS && cfg_word_index("all none " CALLS, item) < 0 &&
            (*item != '-' || cfg_word_index(CALLS, item + 1) < 0))
            return false;
    }
    return true;
}

/* Writes the value into its field; false, with nothing written, when the text is not one. */
static bool parse_value(struct cfg *cfg, const struct setting *setting, const char *text)
{
    void *field = (char *)cfg + setting->offset;
    size_t size;
    double real;
    int number;

    switch (setting->kind) {
    case KIND_SIZE:
        if (!cfg_parse_size(text, &size))
            return false;
        /* The default may stand for "chosen", below what can be asked for. */
        if ((size < (size_t)setting->low && strcmp(text, setting->initial) != 0) || size > (size_t)setting->high)
            return false;
        memcpy(field, &size, sizeof(size));
        return true;
    case KIND_RATE:
        if (!cfg_parse_size(text, &size) || (double)size >= 0x1p63)
            return false;
        real = (double)size;
        memcpy(field, &real, sizeof(real));
        return true;
    case KIND_TIME:
        if (!cfg_parse_time(text, &real) || real > 1e9)
            return false;
        memcpy(field, &real, sizeof(real));
        return true;
    case KIND_INT:
        if (!parse_int(text, setting->low, setting->high, &number))
            return false;
        memcpy(field, &number, sizeof(number));
        return true;
    case KIND_BOOL:
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            return false;
        *(bool *)field = *text == '1';
        return true;
    case KIND_CHOICE:
        number = cfg_word_index(setting->row.values, text);
        if (number < 0)
            return false;
        memcpy(field, &number, sizeof(number));
        return true;
    case KIND_LABELS:
    case KIND_CALLS:
        if (!*text)
            return false;
        /* fall through */
    case KIND_VENDORS:
    case KIND_NUMBERS:
        if (!check_items(setting->kind, text))
            return false;
        /* fall through */
    case KIND_TEXT:
        if (strlen(text) >= setting->bytes)
            return false;
        strcpy(field, text);
        return true;
    }
    return false;
}

static const struct setting *find(const char *name)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        if (strcmp(settings[i].row.name, name) == 0)
            return &settings[i];
    }
    return NULL;
}

static int unknown(const struct source *source, const char *name)
{
    const struct setting *nearest = settings;
    char where[512], suggestion[64];

    for (size_t i = 1; i < SETTINGS; i++) {
        if (cfg_distance(name, settings[i].row.name) < cfg_distance(name, nearest->row.name))
            nearest = &settings[i];
    }
    snprintf(suggestion, sizeof(suggestion), "%s%s", source->origin == CFG_ENVIRONMENT ? PREFIX : "",
             nearest->row.name);
    for (char *c = suggestion; source->origin == CFG_INFO && *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return err_set(HETMPI_ERR_CONFIG, "%.200s: there is no such setting; the nearest is %s (hetmpi_info lists all)",
                   describe(source, name, where, sizeof(where)), suggestion);
}

static int assign(struct cfg *cfg, const struct setting *setting, const char *value, const struct source *source)
{
    char where[512];

    if (parse_value(cfg, setting, value))
        return HETMPI_SUCCESS;
    describe(source, setting->row.name, where, sizeof(where));
    if (setting->kind >= KIND_LABELS && strlen(value) >= setting->bytes)
        return err_set(HETMPI_ERR_CONFIG, "%.200s = \"%.40s...\": %zu characters; it takes at most %zu", where, value,
                       strlen(value), setting->bytes - 1);
    return err_set(HETMPI_ERR_CONFIG, "%.200s = \"%.80s\": not a value of this setting; it takes %s%s", where, value,
                   setting->kind == KIND_CHOICE || setting->kind == KIND_BOOL ? "one of: " : "", setting->row.values);
}

/* Cuts white space from both ends, in place. */
static char *trim(char *text)
{
    char *end = text + strlen(text);

    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

/* One line of the file: NAME = value, with # comments. */
static int load_line(struct cfg *cfg, enum cfg_origin origins[SETTINGS], char *line, const struct source *source)
{
    char *name, *value;
    const struct setting *setting;
    int code;

    line[strcspn(line, "#")] = '\0';
    name = trim(line);
    if (!*name)
        return HETMPI_SUCCESS;
    value = strchr(name, '=');
    if (!value)
        return err_set(HETMPI_ERR_CONFIG, "%.200s:%d: \"%.80s\" is not of the form NAME = value", source->file,
                       source->line, name);
    *value = '\0';
    value = trim(value + 1);
    name = trim(name);
    setting = find(name);
    if (!setting)
        return unknown(source, name);
    if (origins[setting - settings] == CFG_FILE)
        return err_set(HETMPI_ERR_CONFIG, "%.200s:%d: %s is given a second time in this file", source->file,
                       source->line, name);
    code = assign(cfg, setting, value, source);
    if (!code)
        origins[setting - settings] = CFG_FILE;
    return code;
}

static int load_file(struct cfg *cfg, enum cfg_origin origins[SETTINGS], const char *path)
{
    struct source source = {CFG_FILE, path, 0};
    char *line = NULL;
    size_t room = 0;
    ssize_t length;
    int code = HETMPI_SUCCESS;
    FILE *file = fopen(path, "re");

    if (!file)
        return err_set(HETMPI_ERR_CONFIG, PREFIX "CONFIG: the file %.200s cannot be opened: %s", path,
                       strerror(errno));
    errno = 0;
    while (!code && (length = getline(&line, &room, file)) >= 0) {
        source.line++;
        if (strlen(line) != (size_t)length)
            code = err_set(HETMPI_ERR_CONFIG, "%.200s:%d: a zero byte: this is not a text file", path, source.line);
        else
            code = load_line(cfg, origins, line, &source);
        errno = 0;
    }
    if (!code && !feof(file))
        code = err_set(HETMPI_ERR_CONFIG, PREFIX "CONFIG: reading %.200s failed after line %d: %s", path,
                       source.line, strerror(errno));
    free(line);
    fclose(file);
    return code;
}

static int load_environment(struct cfg *cfg, enum cfg_origin origins[SETTINGS], char *const *environment)
{
    const struct source source = {CFG_ENVIRONMENT, NULL, 0};

    for (; *environment; environment++) {
        const char *entry = *environment, *equals = strchr(entry, '=');
        char name[64];
        const struct setting *setting;
        int code;

        if (strncmp(entry, PREFIX, PREFIX_LENGTH) != 0 || !equals)
            continue;
        entry += PREFIX_LENGTH;
        snprintf(name, sizeof(name), "%.*s", (int)(equals - entry), entry);
        /* ROOT: where builds find an installed tree. TEST_*: for the test programs, which are started here too. */
        if (strcmp(name, "CONFIG") == 0 || strcmp(name, "ROOT") == 0 || strncmp(name, "TEST_", 5) == 0)
            continue;
        setting = find(name);
        code = setting ? assign(cfg, setting, equals + 1, &source) : unknown(&source, name);
        if (code)
            return code;
        origins[setting - settings] = CFG_ENVIRONMENT;
    }
    return HETMPI_SUCCESS;
}

static int load(struct cfg *cfg, enum cfg_origin origins[SETTINGS], char *const *environment)
{
    static const char config[] = PREFIX "CONFIG=";
    int code = HETMPI_SUCCESS;

    memset(cfg, 0, sizeof(*cfg));
    for (size_t i = 0; i < SETTINGS; i++) {
        origins[i] = CFG_DEFAULT;
        if (!parse_value(cfg, &settings[i], settings[i].initial))
            return err_set(HETMPI_ERR_INTERNAL, "the default \"%s\" of the setting %s is not a value of it",
                           settings[i].initial, settings[i].row.name);
    }
    for (char *const *entry = environment; *entry && !code; entry++) {
        if (strncmp(*entry, config, sizeof(config) - 1) == 0 && (*entry)[sizeof(config) - 1])
            code = load_file(cfg, origins, *entry + sizeof(config) - 1);
    }
    return code ? code : load_environment(cfg, origins, environment);
}

int cfg_load(struct cfg *cfg, char *const *environment)
{
    enum cfg_origin origins[SETTINGS];
    struct cfg *fresh = malloc(sizeof(*fresh));   /* large: not on a thread's stack */
    int code;

    if (!fresh)
        return err_set(HETMPI_ERR_MEMORY, "no memory (%zu bytes) to read the settings", sizeof(*fresh));
    code = load(fresh, origins, environment);
    if (!code)
        *cfg = *fresh;
    free(fresh);
    return code;
}

int cfg_set_info(struct cfg *cfg, const char *key, const char *value)
{
    const struct source source = {CFG_INFO, NULL, 0};
    char name[64];
    size_t length = strlen(key);
    const struct setting *setting = NULL;

    for (size_t i = 0; i <= length && length < sizeof(name); i++)
        name[i] = (char)toupper((unsigned char)key[i]);
    if (length < sizeof(name))
        setting = find(name);
    if (!setting)
        return unknown(&source, key);
    if (!setting->row.per_comm)
        return err_set(HETMPI_ERR_CONFIG, "info key %s: this setting belongs to the process, not to a communicator; "
                       "set " PREFIX "%s before the program starts", key, name);
    return assign(cfg, setting, value, &source);
}

const struct cfg *cfg_process(void)
{
    const struct cfg *result = NULL;

    pthread_mutex_lock(&process.lock);
    if (process.state == FRESH) {
        if (load(&process.cfg, process.origins, environ)) {
            process.state = BROKEN;
            snprintf(process.error, sizeof(process.error), "%s", err_text());
        } else {
            process.state = LOADED;
            log_set_level((enum log_level)process.cfg.log);
        }
    } else if (process.state == BROKEN) {
        err_copy(HETMPI_ERR_CONFIG, process.error);   /* for the thread that asks now */
    }
    if (process.state == LOADED)
        result = &process.cfg;
    pthread_mutex_unlock(&process.lock);
    return result;
}

size_t cfg_rows(void)
{
    return SETTINGS;
}

const struct cfg_row *cfg_row(size_t index)
{
    return &settings[index].row;
}

enum cfg_origin cfg_row_origin(size_t index)
{
    return process.origins[index];
}

void cfg_value(const struct cfg *cfg, size_t index, char *text, size_t bytes)
{
    const struct setting *setting = &settings[index];
    const void *field = (const char *)cfg + setting->offset;

    switch (setting->kind) {
    case KIND_SIZE:
        cfg_write_size(*(const size_t *)field, text, bytes);
        break;
    case KIND_RATE:
        cfg_write_size((size_t)*(const double *)field, text, bytes);
        break;
    case KIND_TIME:
        cfg_write_time(*(const double *)field, text, bytes);
        break;
    case KIND_INT:
        snprintf(text, bytes, "%d", *(const int *)field);
        break;
    case KIND_BOOL:
        snprintf(text, bytes, "%d", *(const bool *)field);
        break;
    case KIND_CHOICE:
        cfg_word_at(setting->row.values, *(const int *)field, text, bytes);
        break;
    default:
        snprintf(text, bytes, "%s", (const char *)field);
    }
}

/* FNV-1a over the field (texts up to their end); never 0, which marks unused entries. */
static unsigned hash_field(const struct cfg *cfg, const struct setting *setting)
{
    const unsigned char *field = (const unsigned char *)cfg + setting->offset;
    size_t bytes = setting->kind >= KIND_LABELS ? strlen((const char *)field) : setting->bytes;
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ field[i]) * 16777619u;
    return hash ? hash : 1;
}

void cfg_agree(const struct cfg *cfg, unsigned hash[CFG_AGREE_MAX])
{
    size_t n = 0;

    memset(hash, 0, CFG_AGREE_MAX * sizeof(hash[0]));
    for (size_t i = 0; i < SETTINGS && n < CFG_AGREE_MAX; i++) {
        if (settings[i].row.must_agree)
            hash[n++] = hash_field(cfg, &settings[i]);
    }
}

const char *cfg_agree_name(size_t index)
{
    for (size_t i = 0; i < SETTINGS; i++) {
        if (settings[i].row.must_agree && index-- == 0)
            return settings[i].row.name;
    }
    return NULL;
}
