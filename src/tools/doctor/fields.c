/* Fields of JSON objects: see doctor.h. */
#include "doctor.h"

void add_text(struct json_object *object, const char *key, const char *text)
{
    json_object_object_add(object, key, json_object_new_string(text));
}

const char *text_of(struct json_object *object, const char *key)
{
    const char *text = json_object_get_string(json_object_object_get(object, key));

    return text ? text : "";
}

double number_of(struct json_object *object, const char *key)
{
    return json_object_get_double(json_object_object_get(object, key));
}
