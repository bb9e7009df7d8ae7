/* hetmpi.Error: a code of hetmpi's, its name, and the library's message. */
#include "core.h"

#include <stdio.h>

static PyObject *error_class;

static const char *const names[HETMPI_ERR_LAST] = {
    "SUCCESS", "ARG", "TYPE", "OP", "COUNT", "ROOT", "RANK", "TAG", "BUFFER", "MISMATCH", "TIMEOUT", "PEER", "DEVICE", "MPI",
    "MEMORY", "CONFIG", "UNSUPPORTED", "STATE", "ABORTED", "TRUNCATE", "INTERNAL",
};

static PyObject *raise(int code, const char *function, const char *text)
{
    const char *name = code > 0 && code < HETMPI_ERR_LAST ? names[code] : "?";
    PyObject *message = PyUnicode_FromFormat("%s: %s: %s", function, name, text);
    PyObject *error = message ? PyObject_CallFunctionObjArgs(error_class, message, NULL) : NULL;
    PyObject *number = error ? PyLong_FromLong(code) : NULL;
    PyObject *word = number ? PyUnicode_FromString(name) : NULL;

    if (word && PyObject_SetAttrString(error, "code", number) == 0 && PyObject_SetAttrString(error, "name", word) == 0)
        PyErr_SetObject(error_class, error);
    Py_XDECREF(word);
    Py_XDECREF(number);
    Py_XDECREF(error);
    Py_XDECREF(message);
    return NULL;
}

PyObject *error_raise(int code, const char *function)
{
    const char *text = hetmpi_last_error();

    return raise(code, function, *text ? text : hetmpi_error_string(code));
}

PyObject *error_raise_mpi(int mpi_code, const char *function)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;

    MPI_Error_string(mpi_code, text, &length);
    return raise(HETMPI_ERR_MPI, function, text);
}

int errors_add(PyObject *module)
{
    error_class = PyErr_NewExceptionWithDoc("hetmpi.Error",
                                            "An error of the library. code: its number (hetmpi.ERR_TIMEOUT, ...); name: "
                                            "its name (\"TIMEOUT\"); str(): the library's message.",
                                            PyExc_RuntimeError, NULL);
    if (!error_class || PyModule_AddObjectRef(module, "Error", error_class) < 0)
        return -1;
    for (int code = 1; code < HETMPI_ERR_LAST; code++) {
        char name[32];

        snprintf(name, sizeof(name), "ERR_%s", names[code]);
        if (PyModule_AddIntConstant(module, name, code) < 0)
            return -1;
    }
    return 0;
}
