package images

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// PushOptions say how to reach a registry.
type PushOptions struct {
	// Transport reaches the registry, which may listen in another network namespace; that of
	// package remote if nil.
	Transport http.RoundTripper
	// Large is the size, in bytes, from which a layer is sent in one request, whether the registry has it or not. The
	// registry of package node holds what comes otherwise in memory. The default is 512 MiB.
	Large int64
}

// Push uploads an image under ref, host:port/name:tag, over plain HTTP, and returns its digest.
// Small layers that the registry has are not sent again.
func Push(ctx context.Context, ref string, img v1.Image, o PushOptions) (v1.Hash, error) {
	to, err := name.ParseReference(ref, name.Insecure)
	if err != nil {
		return v1.Hash{}, fmt.Errorf("push image: %w", err)
	}
	options := []remote.Option{remote.WithContext(ctx)}
	if o.Transport != nil {
		options = append(options, remote.WithTransport(o.Transport))
	}
	if err := o.pushLarge(ctx, to.Context(), img); err != nil {
		return v1.Hash{}, fmt.Errorf("push image %s: %w", ref, err)
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

// pushLarge uploads an image's large layers.
func (o PushOptions) pushLarge(ctx context.Context, repo name.Repository, img v1.Image) error {
	layers, err := img.Layers()
	if err != nil {
		return fmt.Errorf("read the image's layers: %w", err)
	}
	for _, l := range layers {
		size, err := l.Size()
		if err != nil {
			return fmt.Errorf("size of a layer: %w", err)
		}
		if size < cmp.Or(o.Large, 512<<20) {
			continue
		}
		if err := pushWhole(ctx, repo, l, size, o.Transport); err != nil {
			return err
		}
	}
	return nil
}

// pushWhole uploads a layer of size bytes by one request. A registry that does not know such requests gets it later.
func pushWhole(ctx context.Context, repo name.Repository, l v1.Layer, size int64, t http.RoundTripper) error {
	digest, err := l.Digest()
	if err != nil {
		return fmt.Errorf("digest of a layer: %w", err)
	}
	content, err := l.Compressed()
	if err != nil {
		return fmt.Errorf("read layer %s: %w", digest, err)
	}
	defer content.Close()
	to := url.URL{
		Scheme: repo.Scheme(), Host: repo.RegistryStr(), Path: "/v2/" + repo.RepositoryStr() + "/blobs/uploads/",
		RawQuery: url.Values{"digest": {digest.String()}}.Encode(),
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), content)
	if err != nil {
		return fmt.Errorf("upload layer %s: %w", digest, err)
	}
	r.ContentLength = size
	r.Header.Set("Content-Type", "application/octet-stream")
	answer, err := (&http.Client{Transport: t}).Do(r)
	if err != nil {
		return fmt.Errorf("upload layer %s: %w", digest, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated && answer.StatusCode != http.StatusAccepted {
		return fmt.Errorf("upload layer %s: %s", digest, answer.Status)
	}
	return nil
}
