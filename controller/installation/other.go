package installation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodevirt/nodevirt/controller/pages"
)

// operatorFinalizer is KubeVirt's operator's: with it, the operator removes its installation before the object goes.
const operatorFinalizer = "foregroundDeleteKubeVirt"

// Other returns the KubeVirt object of another installation, whose operator has deployed KubeVirt from it; nil if there is
// none. That installation's controllers and nodevirt's would both reconcile each VM.
func Other(ctx context.Context, r client.Reader) (*kubevirt.KubeVirt, error) {
	var other *kubevirt.KubeVirt
	err := pages.Each(ctx, r, metav1.NamespaceAll, func() *kubevirt.KubeVirtList { return new(kubevirt.KubeVirtList) }, func(page *kubevirt.KubeVirtList) (bool, error) {
		i := slices.IndexFunc(page.Items, func(k kubevirt.KubeVirt) bool {
			return slices.Contains(k.Finalizers, operatorFinalizer) || len(k.Status.Generations) > 0 // of what the operator made
		})
		if i < 0 {
			return false, nil
		}
		other = &page.Items[i]
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for another KubeVirt: %w", err)
	}
	return other, nil
}

// WaitForOther waits until no other KubeVirt is deployed, and logs why it waits. It looks every so often.
func WaitForOther(ctx context.Context, r client.Reader, every time.Duration, log logr.Logger) error {
	for said := false; ; said = true {
		other, err := Other(ctx, r)
		if err != nil || other == nil {
			return err
		}
		if !said {
			log.Error(nil, "another KubeVirt is deployed in this cluster: nodevirt reconciles no VMs; "+
				"uninstall KubeVirt by deleting its KubeVirt object, or uninstall nodevirt", "kubevirt", client.ObjectKeyFromObject(other).String())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
}
