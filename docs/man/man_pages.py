#!/usr/bin/env python3
"""Writes the manual pages: section 3 from the public header, whose comments are the documentation, hetmpi(7) from its
sections and the table of settings, those of section 1 from what the tools say of themselves.

Usage: man_pages.py HEADER HETMPI_INFO HETMPI_DOCTOR FOLDER

What it reads in the header: a comment that begins with a title and an empty line opens a section and tells what is
common to it; a comment in front of declarations, up to the next empty line, or behind one on its line, documents these.
Every function must have one. Its first sentence is the summary, lines that are indented in it are kept as they stand."""
import os
import re
import subprocess
import sys
import textwrap
import time

FORMS = ["int hetmpi_{n}({a}MPI_Comm comm)",
         "int hetmpi_i{n}({a}MPI_Comm comm, hetmpi_request_t *request)",
         "int hetmpi_{n}_on_stream({a}MPI_Comm comm, hetmpi_stream_t stream)",
         "int hetmpi_{n}_init({a}MPI_Comm comm, MPI_Info info, hetmpi_request_t *request)"]


def die(what):
    sys.exit(f"man_pages.py: {what}")


def comment_lines(text):
    """The text of a comment, line by line, without its frame; what was indented stays indented."""
    lines = text.strip().removeprefix("/*").removesuffix("*/").split("\n")
    lines = [lines[0].strip()] + [re.sub(r"^ ?\*? ?", "", line).rstrip() for line in lines[1:]]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    return lines


class Function:
    """One or several functions that one comment documents: a page."""

    def __init__(self, prototypes, lines, section):
        self.prototypes, self.lines, self.section = prototypes, lines, section
        self.names = [re.search(r"(hetmpi_\w+)\(", p).group(1) for p in prototypes]
        self.collective = False


class Header:
    """The header's sections in order, with their text, types and functions."""

    def __init__(self, path):
        self.text = open(path, encoding="utf-8").read()
        self.version = ".".join(re.search(rf"#define HETMPI_VERSION_{part} (\d+)", self.text).group(1)
                                for part in ("MAJOR", "MINOR", "PATCH"))
        self.sections, self.functions, self.types = [], [], {}
        self.intro = comment_lines(re.match(r"/\*.*?\*/", self.text, re.S).group(0))
        self.read(self.text[self.text.index('extern "C" {'):])

    def read(self, text):
        section, comment = None, None
        for token in re.finditer(r"(?P<comment>/\*.*?\*/)|(?P<skip>^#(?:[^\n\\]|\\.)*(?:\\\n[^\n]*)*)"
                                 r"|(?P<blank>\n[ \t]*\n)|(?P<type>^(?:typedef )?(?:struct|enum)[^;{]*\{.*?\}[^;]*;)"
                                 r"|(?P<declare>^HETMPI_DECLARE_\((?P<name>\w+), \((?P<args>[^()]*)\)\))"
                                 r"|(?P<function>^[a-zA-Z][^;{}()]*\bhetmpi_\w+\([^;]*\);)"
                                 r"|(?P<typedef>^typedef [^;{]*;)", text, re.S | re.M):
            kind = token.lastgroup if token.lastgroup not in ("name", "args") else "declare"
            if kind == "comment":
                lines = comment_lines(token.group(0))
                behind = text[text.rfind("\n", 0, token.start()) + 1:token.start()].strip()
                if re.match(r"/\*\n \* [A-Z][A-Za-z ]*\n \*\n", token.group(0)):
                    section = {"title": lines[0], "lines": lines[2:], "functions": []}
                    self.sections.append(section)
                    comment = None
                elif re.search(r"\bhetmpi_\w+\(.*;$", behind):
                    self.functions[-1].lines = lines
                elif not behind:
                    comment = lines
            elif kind == "blank":
                comment = None
            elif kind == "type":
                name = re.search(r"\}\s*(\w+)\s*;$", token.group(0)) or re.search(r"enum (\w+)", token.group(0))
                self.types[name.group(1)] = token.group(0)
            elif kind == "declare":
                arguments = " ".join(token.group("args").split())
                arguments = arguments + ", " if arguments else ""
                self.add([form.format(n=token.group("name"), a=arguments) + ";" for form in FORMS], comment, section)
                self.functions[-1].collective = True
            elif kind == "function":
                self.add([" ".join(token.group(0).split())], comment, section)
                self.functions[-1].collective = section["title"] == "Barrier"

    def add(self, prototypes, comment, section):
        last = self.functions[-1] if self.functions else None
        if comment and last and last.lines is comment:
            extended = Function(last.prototypes + prototypes, comment, section)
            self.functions[-1] = extended
            section["functions"][-1] = extended
            return
        function = Function(prototypes, comment, section)
        self.functions.append(function)
        section["functions"].append(function)


def escape(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def marked(text):
    """Names of ours in bold."""
    return re.sub(r"\b(hetmpi_\w+|HETMPI_\w+|MPI_[A-Z]\w+)", r"\\fB\1\\fR", text)


def paragraphs(lines):
    """Text as roff: paragraphs filled, indented lines as they stand."""
    out, words, kept = [], [], []

    def flush():
        if words:
            out.extend([".PP"] + [marked(escape(w)) for w in textwrap.wrap(" ".join(words), 76, break_on_hyphens=False,
                                                                           break_long_words=False)])
        if kept:
            out.extend([".PP", ".nf"] + [escape(k) for k in textwrap.dedent("\n".join(kept)).split("\n")] + [".fi"])
        words.clear()
        kept.clear()

    for line in lines:
        if line.startswith("  ") and line.strip():
            if words:
                flush()
            kept.append(line)
        elif not line:
            flush()
        else:
            if kept:
                flush()
            words.append(line.strip())
    flush()
    return out[1:] if out[:1] == [".PP"] and out[1:2] != [".nf"] else out


def head(name, number, header, date):
    return [f'.TH {name.upper()} {number} "{date}" "hetmpi {header.version}" "hetmpi"']


def summary(lines):
    text = " ".join(line.strip() for line in lines if not line.startswith("  "))
    text = re.split(r"(?<=[a-z0-9\)])[.;:](?: |$)", text)[0].rstrip(".")
    text = text[0].lower() + text[1:] if re.match(r"[A-Z][a-z ]", text) else text
    return textwrap.shorten(text, 150, placeholder=" ...")


def synopsis(function, header):
    out = [".SH SYNOPSIS", ".nf", "#include <hetmpi.h>", ""]
    text = " ".join(function.prototypes)
    for name, declaration in header.types.items():
        if re.search(rf"\b{name}\b", text):
            out.extend([escape(line) for line in declaration.split("\n")] + [""])
    for prototype in function.prototypes:
        before, arguments = prototype.split("(", 1)
        indent = " " * (len(before) + 1)
        whole = re.sub(r"(?<!,) ", "\0", arguments)   # lines end between parameters
        wrapped = [line.replace("\0", " ") for line in textwrap.wrap(whole, 78 - len(indent), break_long_words=False,
                                                                     break_on_hyphens=False)]
        out.append(escape(f"{before}({wrapped[0]}"))
        out.extend(escape(indent + line) for line in wrapped[1:])
    return out + [".fi"]


def function_page(function, header, date):
    out = head(function.names[0], 3, header, date)
    out += [".SH NAME", escape(", ".join(function.names)) + " \\- " + escape(summary(function.lines))]
    out += synopsis(function, header)
    out += [".SH DESCRIPTION"] + paragraphs(function.lines)
    common = [section for section in header.sections if section["title"] == "Collectives" and function.collective]
    for section in common + [function.section] * (function.section not in common):
        if section["lines"]:
            out += [f".SH {escape(section['title'].upper())}"] + paragraphs(section["lines"])
    if any(p.startswith("int ") for p in function.prototypes):
        out += [".SH RETURN VALUE", marked("HETMPI_SUCCESS") + " (0), or a code of",
                marked("enum hetmpi_error;") + " see", ".BR hetmpi (7).",
                "An error that belongs to a communicator goes through its MPI error handler first;",
                marked("hetmpi_last_error") + "() has the text."]
    others = [f.names[0] for f in function.section["functions"] if f is not function][:12]
    out += [".SH SEE ALSO"] + [f".BR {name} (3)," for name in others] + [".BR hetmpi (7)"]
    return "\n".join(out) + "\n"


def error_list(header):
    out = []
    for name, text in re.findall(r"^ +(HETMPI_\w+)(?: = 0)?,(?: +/\* (.*?) \*/)?$", header.types["hetmpi_error"], re.M):
        out += [".TP", f"\\fB{name}\\fR", escape(text or "no error")]
    return out


def settings(info):
    """The rows of hetmpi_info --markdown, and the text in front of them."""
    text = subprocess.run([info, "--markdown"], check=True, capture_output=True, text=True).stdout
    before = [line.replace("`", "").replace("*", "") for line in text.split("\n|")[0].split("\n")
              if line and not line.startswith(("#", "<!--"))]
    out = paragraphs(before)
    for row in re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.M):
        default, values, meaning, marks = [cell.strip() for cell in row[1].split(" | ")]
        default = default.strip("`") or "none"
        out += [".TP", f"\\fB{row[0]}\\fR (default: {escape(default)})"]
        out += [escape(w) for w in textwrap.wrap(f"{meaning}. Takes: {values}." + (f" [{marks}]" if marks else ""), 76)]
    return out


def overview(header, info, date):
    out = head("hetmpi", 7, header, date)
    title = header.intro[0].split(": ", 1)
    out += [".SH NAME", "hetmpi \\- " + escape(title[1].rstrip("."))]
    out += [".SH SYNOPSIS", ".nf", "#include <hetmpi.h>", ".PP", "cc program.c $(pkg\\-config \\-\\-cflags \\-\\-libs hetmpi)",
            ".fi", ".SH DESCRIPTION"]
    out += paragraphs([line for line in header.intro[2:] if "SPDX" not in line])
    for section in header.sections:
        out += [f".SH {escape(section['title'].upper())}"] + paragraphs(section["lines"])
        if section["title"] == "Errors":
            out += error_list(header)
        for function in section["functions"]:
            out += [".TP", ".BR " + " (3), ".join(escape(n) for n in function.names[:1]) + " (3)",
                    marked(escape(summary(function.lines)))]
    out += [".SH SETTINGS"] + settings(info)
    out += [".SH SEE ALSO", ".BR hetmpi_info (1),", ".BR hetmpi_doctor (1)"]
    return "\n".join(out) + "\n"


TOOLS = {
    "hetmpi_info": ("lists the settings of hetmpi",
                    "Shows what this copy of the library is, the settings that a program started here would get, and where they come "
                    "from. Starts MPI for --job alone."),
    "hetmpi_doctor": ("finds what is wrong with the machines of a job",
                      "Looks at limits, drivers, kernel modules, NICs and the distances between devices on every node, sees "
                      "whether the nodes reach each other, and lets every rank exchange verified data with itself and with every "
                      "other. Says what is wrong, what it costs, and what mends it."),
}


def tool_page(program, header, date):
    """A page from a tool's --help: what is called, two and more spaces, what that does."""
    name = os.path.basename(program)
    usage = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"^(?:usage:)? +(\S.*?) {2,}(.*)$", usage, re.M)
    calls = [row for row in rows if row[0].startswith(name)]
    if not calls:
        die(f"{program} --help lists no way to call it")
    out = head(name, 1, header, date) + [".SH NAME", f"{name} \\- {TOOLS[name][0]}"]
    out += [".SH SYNOPSIS", ".nf"] + [escape(form) for form, _ in calls] + [".fi", ".SH DESCRIPTION"]
    out += textwrap.wrap(TOOLS[name][1], 76)
    for form, text in rows:
        out += [".TP", "\\fB" + escape(form) + "\\fR"] + textwrap.wrap(escape(text), 76)
    others = [f".BR {other} (1)," for other in TOOLS if other != name]
    return "\n".join(out + [".SH SEE ALSO"] + others + [".BR hetmpi (7)"]) + "\n"


def write(folder, name, text):
    path = os.path.join(folder, f"man{name[-1]}")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "w", encoding="utf-8") as file:
        file.write(text)


def main():
    if len(sys.argv) != 5:
        die("usage: man_pages.py HEADER HETMPI_INFO HETMPI_DOCTOR FOLDER")
    path, info, doctor, folder = sys.argv[1:]
    header = Header(path)
    stamp = int(os.environ.get("SOURCE_DATE_EPOCH") or os.path.getmtime(path))
    date = time.strftime("%Y-%m-%d", time.gmtime(stamp))
    for function in header.functions:
        if not function.lines:
            die(f"{path}: {function.names[0]} has no comment")
        write(folder, function.names[0] + ".3", function_page(function, header, date))
        for name in function.names[1:]:
            write(folder, name + ".3", f".so man3/{function.names[0]}.3\n")
    write(folder, "hetmpi.7", overview(header, info, date))
    for program in (info, doctor):
        write(folder, os.path.basename(program) + ".1", tool_page(program, header, date))


if __name__ == "__main__":
    main()
