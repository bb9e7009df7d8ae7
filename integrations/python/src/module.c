/* hetmpi._core: libhetmpi for Python, on the stable ABI. People use it through hetmpi/api.py. */
#include "core.h"

static PyObject *version(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(hetmpi_version());
}

static PyObject *build_info(PyObject *module, PyObject *unused)
{
    (void)module;
    (void)unused;
    return PyUnicode_FromString(hetmpi_build_info());
}

static PyObject *setting(PyObject *module, PyObject *name)
{
    PyObject *bytes = PyUnicode_AsUTF8String(name);
    char text[4096];
    int code;

    (void)module;
    if (!bytes)
        return NULL;
    code = hetmpi_setting(PyBytes_AsString(bytes), text, sizeof(text));
    Py_DECREF(bytes);
    return code ? error_raise(code, "setting") : PyUnicode_FromString(text);
}

static PyMethodDef methods[] = {
    {"version", version, METH_NOARGS, "The version of libhetmpi."},
    {"build_info", build_info, METH_NOARGS, "How libhetmpi was built: backend, wires, providers, MPI, compiler."},
    {"setting", setting, METH_O, "setting(name): this process's value of a setting, as 'TIMEOUT'."},
    {"waitany", requests_waitany, METH_O, NULL},
    {"testall", requests_testall, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "hetmpi._core", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *module = PyModule_Create(&definition);

    if (!module)
        return NULL;
    if (errors_add(module) < 0 || call_add(module) < 0 || ops_add(module) < 0 || memory_add(module) < 0 ||
        comms_add(module) < 0 || requests_add(module) < 0 || PyModule_AddFunctions(module, collectives_methods) < 0 ||
        PyModule_AddFunctions(module, messages_methods) < 0 || PyModule_AddIntConstant(module, "ANY_SOURCE", MPI_ANY_SOURCE) < 0 ||
        PyModule_AddIntConstant(module, "ANY_TAG", MPI_ANY_TAG) < 0 ||
        PyModule_AddIntConstant(module, "PROC_NULL", MPI_PROC_NULL) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
