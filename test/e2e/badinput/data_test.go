package badinput

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"gotest.tools/v3/golden"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/nodevirt/nodevirt/shim/vmspec"
)

// testDataDisks has what is no disk be a data disk: attached as it is, expanded, and as what a
// volume is to become. Each is answered the same, and leaves nothing, on the volume neither.
func (s *suite) testDataDisks(t *testing.T) {
	volume := filepath.Join(s.n.Dir(), "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	pods := map[string]*pod{
		"file":   s.run(t, "file", nil),
		"raw":    s.run(t, "raw", annotated(vmspec.AnnotationDiskMode, string(vmspec.ModeRaw))),
		"volume": s.run(t, "volume", annotated(vmspec.AnnotationDiskOrigin, "root=data")),
	}
	a := readAnswers(t, "data")
	cases := slices.DeleteFunc(append(diskCases(t), imageCases()...), func(c badCase) bool { return c.pod != nil })
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			reply, err := s.imgs.PullImage(t.Context(), &runtimeapi.PullImageRequest{
				Image: &runtimeapi.ImageSpec{Image: s.push(t, "data", c.build(t))},
			})
			if err != nil {
				t.Fatal(err)
			}
			before := s.census(t)
			for mode, p := range pods {
				_, err := s.create(t, p, newContainer(s.disk, func(config *runtimeapi.ContainerConfig) {
					config.Mounts = []*runtimeapi.Mount{{ContainerPath: "/disks/data", Readonly: true, Image: &runtimeapi.ImageSpec{Image: reply.ImageRef}}}
					if mode == "volume" {
						config.Mounts = append(config.Mounts, &runtimeapi.Mount{ContainerPath: "/volumes/root", HostPath: volume})
					}
				}))
				c.code = codes.InvalidArgument
				if said := status.Convert(err); mode == "volume" { // of which the answer tells the name
					err = status.Error(said.Code(), strings.Replace(said.Message(), `disk "root"`, `disk "data"`, 1))
				}
				a.check(t, c, err)
			}
			s.wantNothingSince(t, before)
			if left, err := os.ReadDir(volume); err != nil || len(left) > 0 {
				t.Errorf("on the volume is left %v, %v", left, err)
			}
		})
	}
	for _, p := range pods {
		s.remove(t, p)
	}
	if golden.FlagUpdate() {
		a.write(t)
	}
}
