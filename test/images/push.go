package images

import (
	"context"
	"fmt"
	"net/http"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// PushOptions say how to reach a registry.
type PushOptions struct {
	// Transport reaches the registry, which may listen in another network namespace; that of
	// package remote if nil.
	Transport http.RoundTripper
}

// Push uploads an image under ref, host:port/name:tag, over plain HTTP, and returns its digest.
// What the registry has is not sent again.
func Push(ctx context.Context, ref string, img v1.Image, o PushOptions) (v1.Hash, error) {
	to, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("push image: %w", err)
	}
	options := []remote.Option{remote.WithContext(ctx)}
	if o.Transport != nil {
		options = append(options, remote.WithTransport(o.Transport))
	}
	if err := remote.Write(to, img, options...); err != nil {
		return v1.Hash{}, fmt.Errorf("push image %s: %w", ref, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return v1.Hash{}, fmt.Errorf("digest of image %s: %w", ref, err)
	}
	return digest, nil
}
