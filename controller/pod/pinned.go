package pod

import (
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	corev1 "k8s.io/api/core/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

// PinImage has the target of a migration name the image of the guest's disk by its digest, as the source's node reports
// it: the tag may have moved since the guest started, and the guest's writes go with the content below them. A source
// whose image has no digest, such as one that was imported into its node, changes nothing.
func PinImage(target, source *corev1.Pod, s *kubevirt.VirtualMachineInstanceSpec) {
	for i := range target.Spec.Containers {
		c := &target.Spec.Containers[i]
		isDisk := func(v kubevirt.Volume) bool { return v.ContainerDisk != nil && v.ContainerDisk.Image == c.Image }
		if c.Name != Container || !slices.ContainsFunc(s.Volumes, isDisk) {
			continue
		}
		for _, has := range source.Status.ContainerStatuses {
			if has.Name == Container && pins(has.ImageID, c.Image) {
				c.Image = has.ImageID
			}
		}
	}
}

// pins reports whether a node's name of an image is a digest in the repository of another name of it.
func pins(digest, image string) bool {
	exact, err := name.NewDigest(digest)
	if err != nil {
		return false
	}
	tag, err := name.NewTag(image)
	return err == nil && tag.Context().Name() == exact.Context().Name()
}
