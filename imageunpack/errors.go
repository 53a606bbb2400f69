package imageunpack

import "github.com/containerd/errdefs"

var (
	// ErrNoDisk means that an image has nothing in /disk: it is an image of an ordinary container.
	ErrNoDisk = errdefs.ErrInvalidArgument.WithMessage("the image has no disk in /disk")
	// ErrUnusable matches every error below: the image is the cause, and another attempt fails too.
	ErrUnusable = errdefs.ErrInvalidArgument.WithMessage("unusable disk")
)

// The reasons to refuse a disk or another file of an image. The error that wraps one of them names
// the image, the path and the remedy.
const (
	ErrConfig        = refusal("unreadable metadata")
	ErrArtifact      = refusal("not a container image")
	ErrPlatform      = refusal("built for another platform")
	ErrAmbiguous     = refusal("not exactly one disk")
	ErrNotFound      = refusal("no such file in the image")
	ErrName          = refusal("unusable file name")
	ErrOutside       = refusal("leads outside the permitted path")
	ErrNotRegular    = refusal("not a regular file")
	ErrEmpty         = refusal("empty file")
	ErrTruncated     = refusal("truncated")
	ErrCorrupt       = refusal("corrupt")
	ErrSize          = refusal("unsupported size")
	ErrUnsupported   = refusal("unsupported feature")
	ErrForeignFormat = refusal("neither qcow2 nor raw")
	ErrBackingFile   = refusal("has a backing file")
	ErrExternalData  = refusal("keeps its data in another file")
	ErrEncrypted     = refusal("encrypted")
)

// refusal is a reason that lies in the image. Each matches ErrUnusable.
type refusal string

func (r refusal) Error() string { return string(r) }

func (r refusal) Unwrap() error { return ErrUnusable }
