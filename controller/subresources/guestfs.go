package subresources

import "context"

// guestfsInfo is KubeVirt's answer to clients that make a pod with libguestfs-tools. The image's
// whole name makes the other fields needless; clients expect them.
type guestfsInfo struct {
	Registry    string `json:"registry"`
	Tag         string `json:"tag"`
	Digest      string `json:"digest"`
	ImagePrefix string `json:"imagePrefix"`
	GsImage     string `json:"gsImage"`
}

// guestfs names the image of libguestfs-tools.
func (s *Server) guestfs(_ context.Context, c *call) error {
	if s.GuestfsImage == "" {
		return missing("nodevirt names no image of libguestfs-tools; use virtctl guestfs --image, " +
			"or have the cluster's administrator set -guestfs-image of nodevirt-controller")
	}
	return c.reply(guestfsInfo{GsImage: s.GuestfsImage})
}
