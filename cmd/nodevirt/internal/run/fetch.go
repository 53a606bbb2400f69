package run

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/pkg/labels"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxManifest is the largest manifest to read, in bytes; it is containerd's limit.
const maxManifest = 8 << 20

// fetch is an image that containerd pulls into its content store.
type fetch struct {
	store  content.Store
	source string // the label of content that came from the image's registry
	repo   string // what the label says
	layers []ocispec.Descriptor
}

func newFetch(store content.Store, image string) (*fetch, error) {
	named, err := reference.ParseDockerRef(image)
	if err != nil {
		return nil, fmt.Errorf("image %s: %w", image, err)
	}
	host, _, _ := strings.Cut(reference.Domain(named), ":") // containerd leaves the port out
	return &fetch{
		store: store, repo: reference.Path(named), source: labels.LabelDistributionSource + "." + host,
	}, nil
}

// progress returns how many bytes of the image's layers containerd has, and the
// total, which is 0 while unknown. It ignores errors: the pull itself returns
// the cause.
func (f *fetch) progress(ctx context.Context) (fetched, total int64) {
	statuses, err := f.store.ListStatuses(ctx)
	if err != nil {
		return 0, 0
	}
	under := map[string]int64{}
	for _, s := range statuses {
		under[s.Ref] = s.Offset
	}
	if f.layers == nil {
		f.layers = f.find(ctx, under)
	}
	for _, l := range f.layers {
		total += l.Size
		if offset, ok := under[remotes.MakeRefKey(ctx, l)]; ok {
			fetched += offset
		} else if info, err := f.store.Info(ctx, l.Digest); err == nil {
			fetched += info.Size
		}
	}
	return fetched, total
}

// find looks for the manifest whose layers containerd is fetching.
func (f *fetch) find(ctx context.Context, under map[string]int64) (layers []ocispec.Descriptor) {
	if len(under) == 0 {
		return nil
	}
	var manifests []digest.Digest
	_ = f.store.Walk(ctx, func(info content.Info) error {
		if slices.Contains(strings.Split(info.Labels[f.source], ","), f.repo) && info.Size <= maxManifest {
			manifests = append(manifests, info.Digest)
		}
		return nil
	}, fmt.Sprintf("labels.%q", f.source))
	for _, d := range manifests {
		data, err := content.ReadBlob(ctx, f.store, ocispec.Descriptor{Digest: d})
		var m ocispec.Manifest
		if err != nil || json.Unmarshal(data, &m) != nil {
			continue // a config, or a small layer
		}
		if slices.ContainsFunc(m.Layers, func(l ocispec.Descriptor) bool {
			_, ok := under[remotes.MakeRefKey(ctx, l)]
			return ok
		}) {
			return m.Layers
		}
	}
	return nil
}
