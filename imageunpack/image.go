package imageunpack

import (
	"context"
	"fmt"
	"regexp"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
)

// image looks up an image as containerd's CRI plug-in does. It accepts an image id, which is a name
// in containerd's k8s.io namespace; a full name; a short name; and a short id.
func (u *Unpacker) image(ctx context.Context, name string) (containerd.Image, error) {
	img, err := u.client.GetImage(ctx, name)
	if err == nil || !errdefs.IsNotFound(err) {
		return img, wrapImage(name, err)
	}
	if full, parseErr := reference.ParseDockerRef(name); parseErr == nil {
		img, err = u.client.GetImage(ctx, full.String())
		if err == nil || !errdefs.IsNotFound(err) {
			return img, wrapImage(name, err)
		}
	}
	if !shortID.MatchString(name) {
		return nil, wrapImage(name, err)
	}
	found, listErr := u.client.ListImages(ctx, fmt.Sprintf("name~=%q", "^sha256:"+name))
	switch {
	case listErr != nil:
		return nil, wrapImage(name, listErr)
	case len(found) == 0:
		return nil, wrapImage(name, err)
	case len(found) > 1:
		return nil, fmt.Errorf("ambiguous image id prefix %q: matches %d images: write more of it: %w",
			name, len(found), errdefs.ErrInvalidArgument)
	}
	return found[0], nil
}

// shortID matches an image id without its algorithm, in full or shortened.
var shortID = regexp.MustCompile(`^[0-9a-f]{3,64}$`)

func wrapImage(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errdefs.IsNotFound(err):
		return fmt.Errorf("image %q is not on this node: pull it first: %w", name, errdefs.ErrNotFound)
	}
	return fmt.Errorf("look up image %q: %w", name, err)
}
