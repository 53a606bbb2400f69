// Package vmfile makes the files that a VM owns beside its disks, such as its kernel.
//
// It owns the table of these files: where each comes from, its name in the
// container's folder, its mode, and its place in the domain. Disks are package
// disk's; when files are made and removed is package vm's.
package vmfile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"

	"github.com/nodevirt/nodevirt/imageunpack"
	"github.com/nodevirt/nodevirt/shim/domain"
	"github.com/nodevirt/nodevirt/shim/record"
	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// ErrInvalid says that the pod asks for a file that can't be used.
var ErrInvalid = errdefs.ErrInvalidArgument.WithMessage("unusable file")

// file is a row of the table.
type file struct {
	// name is the file's in the container's folder.
	name string
	// field is the VMI's that asks for the file, for errors.
	field string
	// source is the file's path in the container's image; empty if the VM needs none.
	source func(vmspec.Spec) string
	mode   fs.FileMode
	// limit bounds the size, in bytes. An image must not fill the node.
	limit int64
	// describe sets the file's path in the domain.
	describe func(*domain.Description, string)
}

const gibibyte = 1 << 30

// table lists the files. QEMU opens them by path, as the VM's user, who owns them.
func table() []file {
	kernel := func(s vmspec.Spec) vmspec.Kernel {
		if s.Firmware.Kernel == nil {
			return vmspec.Kernel{}
		}
		return *s.Firmware.Kernel
	}
	const container = "spec.domain.firmware.kernelBoot.container."
	return []file{
		{
			name: "kernel", field: container + "kernelPath", mode: 0o400, limit: gibibyte,
			source:   func(s vmspec.Spec) string { return kernel(s).Path },
			describe: func(m *domain.Description, path string) { m.Kernel = path },
		},
		{
			name: "initrd", field: container + "initrdPath", mode: 0o400, limit: gibibyte,
			source:   func(s vmspec.Spec) string { return kernel(s).Initrd },
			describe: func(m *domain.Description, path string) { m.Initrd = path },
		},
	}
}

// opener opens files of images, as [imageunpack.Unpacker] does.
type opener interface {
	Open(ctx context.Context, d imageunpack.Disk, name string) (*os.File, error)
}

// Files makes the files of VMs. Its methods may be called at the same time for
// different containers.
type Files struct {
	images opener
	folder func(id string) string
}

// New returns Files that reads images and writes to the containers' folders.
func New(images opener, folder func(id string) string) *Files {
	return &Files{images: images, folder: folder}
}

// Create makes the files of a container whose folder and record exist, and whose user
// is known. Image is the container's own, and nil only for a VM that needs no file of it. Errors that the pod causes are ErrInvalid, or those of imageunpack.
func (f *Files) Create(ctx context.Context, r record.Container, image *imageunpack.Disk) error {
	for _, row := range table() {
		from := row.source(r.Spec)
		if from == "" {
			continue
		}
		if image == nil {
			return fmt.Errorf("make file %s: the container's image is not held", row.name)
		}
		if err := f.copy(ctx, row, r, *image, from); err != nil {
			if errors.Is(err, imageunpack.ErrUnusable) {
				err = fmt.Errorf("%w: %w", ErrInvalid, err)
			}
			return fmt.Errorf("%s: %s: %w", vmspec.AnnotationVMI, row.field, err)
		}
	}
	return nil
}

func (f *Files) copy(ctx context.Context, row file, r record.Container, image imageunpack.Disk, from string) (err error) {
	src, err := f.images.Open(ctx, image, from)
	if err != nil {
		return err
	}
	defer src.Close()
	path := f.path(r.ID, row)
	dst, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, row.mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	n, err := io.Copy(dst, io.LimitReader(src, row.limit+1))
	if err != nil {
		return fmt.Errorf("copy %s of image %s: %w", from, image.Image, err)
	}
	if n > row.limit {
		return fmt.Errorf("%w: %s of image %s is larger than %d GiB", ErrInvalid, from, image.Image, row.limit/gibibyte)
	}
	if err := dst.Chown(int(r.Domain.UID), int(r.Domain.GID)); err != nil {
		return fmt.Errorf("give %s to the VM's user: %w", path, err)
	}
	return nil
}

// Remove removes the files of a container. It is for a container whose folder stays:
// the folder's removal takes them along.
func (f *Files) Remove(id string) error {
	var errs []error
	for _, row := range table() {
		if err := os.Remove(f.path(id, row)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Describe sets the paths of a container's files in its domain.
func (f *Files) Describe(r record.Container, m *domain.Description) {
	for _, row := range table() {
		if row.source(r.Spec) != "" {
			row.describe(m, f.path(r.ID, row))
		}
	}
}

func (f *Files) path(id string, row file) string { return filepath.Join(f.folder(id), row.name) }
