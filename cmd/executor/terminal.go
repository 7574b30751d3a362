package main

import (
	"cmp"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// terminal is how wide and high w is, and false where w is no terminal.
func terminal(w io.Writer) (width, height int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile || os.Getenv("TERM") == "dumb" {
		return 0, 0, false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return 0, 0, false
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 80, 24, true
	}
	return cmp.Or(int(size.Col), 80), cmp.Or(int(size.Row), 24), true
}

// columns is how wide w is, or what the user says in COLUMNS, or 100 where there is no telling.
func columns(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if width, _, ok := terminal(w); ok {
		return width
	}
	return 100
}

// colourful says that w is a terminal whose user did not ask for no colours.
func colourful(w io.Writer) bool {
	_, _, ok := terminal(w)
	return ok && os.Getenv("NO_COLOR") == ""
}
