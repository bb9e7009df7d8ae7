/* What the kernel says in files: see doctor.h. */
#include "doctor.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES 1024

static void path_of(const struct doctor *doctor, char path[PATH_BYTES], const char *format, va_list arguments)
{
    int length = snprintf(path, PATH_BYTES, "%s", doctor->options.root);

    vsnprintf(path + length, PATH_BYTES - (size_t)length, format, arguments);
}
#define PATH_OF(doctor, path, format)                                                                                 \
    do {                                                                                                              \
        va_list arguments_;                                                                                           \
        va_start(arguments_, format);                                                                                 \
        path_of(doctor, path, format, arguments_);                                                                    \
        va_end(arguments_);                                                                                           \
    } while (0)

bool file_text(const struct doctor *doctor, char *text, size_t bytes, const char *path, ...)
{
    char full[PATH_BYTES];
    FILE *file;
    size_t n;

    text[0] = '\0';
    PATH_OF(doctor, full, path);
    file = fopen(full, "re");
    if (!file)
        return false;
    n = fread(text, 1, bytes - 1, file);
    fclose(file);
    text[n] = '\0';
    if (n && text[n - 1] == '\n')
        text[n - 1] = '\0';
    return true;
}

bool file_exists(const struct doctor *doctor, const char *path, ...)
{
    char full[PATH_BYTES];

    PATH_OF(doctor, full, path);
    return access(full, F_OK) == 0;
}

bool file_line(const struct doctor *doctor, char *line, size_t bytes, const char *begin, const char *path, ...)
{
    char full[PATH_BYTES];
    FILE *file;
    bool found = false;

    PATH_OF(doctor, full, path);
    file = fopen(full, "re");
    if (!file)
        return false;
    while (!found && fgets(line, (int)bytes, file))
        found = strncmp(line, begin, strlen(begin)) == 0;
    fclose(file);
    if (found)
        line[strcspn(line, "\n")] = '\0';
    return found;
}

long long file_number(const struct doctor *doctor, long long otherwise, const char *path, ...)
{
    char full[PATH_BYTES];
    long long number = otherwise;
    FILE *file;

    PATH_OF(doctor, full, path);
    file = fopen(full, "re");
    if (!file)
        return otherwise;
    if (fscanf(file, "%lli", &number) != 1)
        number = otherwise;
    fclose(file);
    return number;
}

static int not_dots(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

int folder_list(const struct doctor *doctor, char ***names, const char *path, ...)
{
    char full[PATH_BYTES];
    struct dirent **entries;
    int n, kept = 0;

    PATH_OF(doctor, full, path);
    *names = NULL;
    n = scandir(full, &entries, not_dots, alphasort);
    if (n < 0)
        return 0;
    *names = calloc((size_t)n + 1, sizeof(**names));
    for (int i = 0; i < n; i++) {
        if (*names && ((*names)[kept] = strdup(entries[i]->d_name)))
            kept++;
        free(entries[i]);
    }
    free(entries);
    return kept;
}

void folder_free(char **names, int n)
{
    for (int i = 0; i < n; i++)
        free(names[i]);
    free(names);
}

bool file_real(const struct doctor *doctor, char *real, size_t bytes, const char *path, ...)
{
    char full[PATH_BYTES], *found, *root;
    size_t skip;

    PATH_OF(doctor, full, path);
    found = realpath(full, NULL);
    root = *doctor->options.root ? realpath(doctor->options.root, NULL) : NULL;
    skip = found && root && strncmp(found, root, strlen(root)) == 0 ? strlen(root) : 0;
    if (found)
        snprintf(real, bytes, "%s", found + skip);
    free(root);
    free(found);
    return found != NULL;
}
