package unpack

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/nodevirt/nodevirt/shim/checkpoint"
)

// Command is the first argument of the process, before the size of the disk in bytes, and [checkpoint.Manifest.Extra].
const Command = "unpack"

// The descriptors that the process inherits.
const (
	fromFD = 3
	toFD   = 4
)

// The exit codes of the process for errors that its caller distinguishes. Others are 1.
const (
	exitUnusable = 3
	exitFull     = 4
)

// Main decompresses descriptor 3 to descriptor 4, an empty file. It returns the process's exit code, and writes its error to
// report.
func Main(size, extra string, report io.Writer) (code int) {
	n, err := strconv.ParseInt(size, 10, 64)
	more, err2 := strconv.ParseInt(extra, 10, 64)
	if err = errors.Join(err, err2); err == nil {
		err = checkpoint.ExpandDisk(os.NewFile(fromFD, "checkpoint"), n, more, os.NewFile(toFD, "disk"))
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(report, err)
	switch {
	case errors.Is(err, checkpoint.ErrUnusable):
		return exitUnusable
	case errors.Is(err, syscall.ENOSPC):
		return exitFull
	}
	return 1
}
