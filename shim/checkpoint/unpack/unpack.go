package unpack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/nodevirt/nodevirt/imageunpack/confine"
	"github.com/nodevirt/nodevirt/shim/checkpoint"
)

// runner runs confined programs, as package expand's Tool does.
type runner interface {
	Run(ctx context.Context, p confine.Program, files []*os.File, stdout, stderr io.Writer, started func(pid int) error) error
}

// Unpacker decompresses disks. Its methods may be called from any goroutine.
type Unpacker struct {
	// Tool confines the process.
	Tool runner
	// Program is the path of a program that calls [Main] if its first argument is [Command].
	Program string
}

// Disk writes a disk's file to an empty file, as [checkpoint.UnpackDisk] does. The process runs as a user, and reads nothing
// before started has returned, which is called with its id. It has ended when Disk returns, and ends with ctx. Extra is the
// disk's [checkpoint.Manifest.Extra].
func (u Unpacker) Disk(
	ctx context.Context, uid uint32, files checkpoint.Files, d checkpoint.Disk, extra int64, to *os.File, started func(pid int) error,
) error {
	return checkpoint.PassDisk(ctx, files, d, func(compressed io.Reader) error {
		return u.run(ctx, uid, []string{strconv.FormatInt(d.Size, 10), strconv.FormatInt(extra, 10)}, compressed, to, started)
	})
}

func (u Unpacker) run(ctx context.Context, uid uint32, sizes []string, compressed io.Reader, to *os.File, started func(pid int) error) error {
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		defer in.Close()
		// If the process ends first, its error says why. The reader keeps its own, which the caller has.
		_, _ = io.Copy(in, compressed)
	}()
	var output limited
	err = u.Tool.Run(ctx, confine.Program{
		Path: u.Program, Args: append([]string{u.Program, Command}, sizes...),
		UID: uid, GID: uid, Descriptors: []int{fromFD, toFD}, EndsWithParent: true,
	}, []*os.File{out, to}, nil, &output, started)
	_ = out.Close() // has the copy end
	<-passed
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // not "signal: killed"
	}
	return failure(err, output.String())
}

// failure returns the error of a process that has ended.
func failure(err error, output string) error {
	if err == nil {
		return nil
	}
	output = strings.TrimSpace(output)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		switch exit.ExitCode() {
		case exitUnusable:
			return fmt.Errorf("%w: %s", checkpoint.ErrUnusable, strings.TrimPrefix(output, checkpoint.ErrUnusable.Error()+": "))
		case exitFull:
			return fmt.Errorf("decompress it: %w", syscall.ENOSPC)
		}
	}
	return fmt.Errorf("decompress it: %w: %.300q", err, output)
}

// limited keeps the beginning of the process's output.
type limited struct{ bytes.Buffer }

const maxOutput = 1000

func (l *limited) Write(b []byte) (int, error) {
	_, err := l.Buffer.Write(b[:min(len(b), maxOutput-l.Len())])
	return len(b), err
}
