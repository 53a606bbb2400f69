package admission

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/nodevirt/nodevirt/controller/decode"
)

// PathUpload is the path of the webhook that decides on PVCs which are created for an upload.
const PathUpload = "/apis/" + Group + "/" + Version + "/upload"

// annotationUpload is CDI's, of a PVC that CDI fills with an upload.
const annotationUpload = "cdi.kubevirt.io/storage.upload.target"

// Uploads reports whether the cluster has CDI, which alone takes uploads.
type Uploads func(ctx context.Context, namespace string) (bool, error)

// upload refuses a PVC for an upload that nothing would take: virtctl would wait for minutes, and leave an empty PVC.
func (w Webhooks) upload(ctx context.Context, request admission.Request) admission.Response {
	var pvc metav1.PartialObjectMetadata
	if err := decode.JSON(request.Object.Raw, &pvc); err != nil {
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("read the PVC: %w", err))
	}
	if _, asks := pvc.Annotations[annotationUpload]; !asks {
		return admission.Allowed("")
	}
	served, err := w.Uploads(ctx, request.Namespace)
	switch {
	case err != nil:
		return admission.Errored(http.StatusInternalServerError, err)
	case served:
		return admission.Allowed("")
	}
	return admission.Denied("uploads need CDI (Containerized Data Importer), which this cluster does not have; install it, or make a registry disk " +
		"of the file (nodevirt image build FILE -t IMAGE) and name that in a dataVolumeTemplate's source.registry")
}
