package imageunpack

import "github.com/containerd/errdefs"

var (
	// ErrNoDisk means that an image has nothing in /disk: it is an ordinary container's image.
	ErrNoDisk = errdefs.ErrInvalidArgument.WithMessage("the image has no disk in /disk")
	// ErrUnusable matches every error below: the image is at fault, and trying again won't help.
	ErrUnusable = errdefs.ErrInvalidArgument.WithMessage("unusable disk")
)

// Why a disk, or a file of an image, is refused. The error that wraps one of these names the
// image, the path and the way out.
const (
	ErrConfig        = refusal("unreadable metadata")
	ErrPlatform      = refusal("made for other machines")
	ErrAmbiguous     = refusal("not exactly one disk")
	ErrNotFound      = refusal("no such file in the image")
	ErrOutside       = refusal("leads outside of where it may")
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

// refusal is a reason that lies in the image.
type refusal string

func (r refusal) Error() string { return string(r) }

// Unwrap makes each refusal an ErrUnusable.
func (r refusal) Unwrap() error { return ErrUnusable }
