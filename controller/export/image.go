package export

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	api "kubevirt.io/api/export/v1"

	"github.com/nodevirt/nodevirt/controller/admission"
	"github.com/nodevirt/nodevirt/controller/export/push"
	"github.com/nodevirt/nodevirt/controller/export/server"
	"github.com/nodevirt/nodevirt/shim/fields"
)

// Annotations of an export. KubeVirt has no field for them.
const (
	// AnnotationImage is the reference to which a disk is pushed as a registry disk:
	// REGISTRY/NAME:TAG.
	AnnotationImage = "nodevirt.io/push-image"
	// AnnotationSecret is the name of the Secret with the registry's credentials.
	AnnotationSecret = "nodevirt.io/push-secret" //nolint:gosec // the annotation's name
	// AnnotationVolume is the name of the PVC that is pushed, where there are several.
	AnnotationVolume = "nodevirt.io/push-volume"
)

const (
	// conditionPushed says whether the registry has the image. Its message is then REFERENCE@DIGEST.
	conditionPushed api.ConditionType = "ImagePushed"

	reasonPushPending = "Pending"
	reasonPushing     = "Pushing"
	reasonPushed      = "Pushed"
	reasonPushFailed  = "PushFailed"
	reasonNoDisk      = "VolumeNotFound"
)

// containerPush is the init container that pushes. The server begins after it.
const containerPush = "push"

func pushAnnotations() []string {
	return []string{AnnotationImage, AnnotationSecret, AnnotationVolume}
}

// checkPush returns what is wrong with an export's annotations. As the spec, they stay as they are:
// the pod has them.
func checkPush(r *admission.Review) field.ErrorList {
	at := field.NewPath("metadata", "annotations")
	var problems field.ErrorList
	image, wanted := r.Meta.Annotations[AnnotationImage]
	if wanted {
		if err := push.CheckImage(image); err != nil {
			problems = append(problems, fields.Invalid(at.Key(AnnotationImage), fields.Excerpt(image),
				"must be REGISTRY/NAME:TAG, such as registry.example.com/disks/web:1"))
		}
	}
	for _, key := range []string{AnnotationSecret, AnnotationVolume} {
		value, given := r.Meta.Annotations[key]
		switch {
		case given && !wanted:
			problems = append(problems, field.Forbidden(at.Key(key), "without "+AnnotationImage))
		case given:
			if problem := fields.Subdomain(at.Key(key), value); problem != nil {
				problems = append(problems, problem)
			}
		}
	}
	return problems
}

// samePush refuses other annotations.
func samePush(r *admission.Review) field.ErrorList {
	var problems field.ErrorList
	meta, _ := r.Old["metadata"].(map[string]any)
	old, _ := meta["annotations"].(map[string]any)
	for _, key := range pushAnnotations() {
		was, had := old[key]
		if is, has := r.Meta.Annotations[key]; has != had || has && was != is {
			problems = append(problems, field.Forbidden(field.NewPath("metadata", "annotations").Key(key),
				"immutable after creation: create another export"))
		}
	}
	return problems
}

// wantsImage reports whether an export is pushed, and the registry does not have the image yet.
func wantsImage(e *vmExport) bool {
	if e.Annotations[AnnotationImage] == "" {
		return false
	}
	c := conditionOf(e, conditionPushed)
	return c == nil || c.Status != corev1.ConditionTrue
}

func conditionOf(e *vmExport, kind api.ConditionType) *api.Condition {
	if e.Status == nil {
		return nil
	}
	i := slices.IndexFunc(e.Status.Conditions, func(c api.Condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &e.Status.Conditions[i]
}

// image returns what the export's pod pushes; nil for nothing. The reason says why the disk is not
// known.
func image(w *work, s *source) (*server.Push, *reason) {
	if !wantsImage(w.e) {
		return nil, nil
	}
	var disks []string
	served := map[string]string{}
	for _, v := range s.volumes {
		if v.has == disk {
			disks = append(disks, v.source)
			served[v.source] = v.pvc.Name
		}
	}
	volume := w.e.Annotations[AnnotationVolume]
	switch {
	case volume != "" && !slices.Contains(disks, volume):
		return nil, because(reasonNoDisk, "the annotation %s is not the PVC of one of the disks: %s", AnnotationVolume, listed(disks))
	case volume == "" && len(disks) == 1:
		volume = disks[0]
	case volume == "":
		return nil, because(reasonNoDisk, "create an export whose annotation %s is the PVC of one of the disks: %s", AnnotationVolume, listed(disks))
	}
	p := &server.Push{Image: w.e.Annotations[AnnotationImage], Volume: served[volume]}
	if s.spec != nil && s.spec.Spec.Template != nil {
		p.Architecture = s.spec.Spec.Template.Spec.Architecture
	}
	return p, nil
}

// listed returns names for a message.
func listed(names []string) string {
	const most = 8
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return cmp.Or(strings.Join(names, ", "), "there is none")
}

// pushed sets the condition of the image.
func (r *Reconciler) pushed(w *work, status corev1.ConditionStatus, reason, message string) {
	r.condition(w.e, api.Condition{Type: conditionPushed, Status: status, Reason: reason, Message: fields.Clip(message, maxMessage)})
}

// watch reports how far the push of a pod is.
func (r *Reconciler) watch(w *work, p *corev1.Pod) {
	if !wantsImage(w.e) {
		return
	}
	ref := w.e.Annotations[AnnotationImage]
	i := slices.IndexFunc(p.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Name == containerPush })
	if i < 0 {
		r.pushed(w, corev1.ConditionFalse, reasonPushPending, "the exporter pod waits for its node")
		return
	}
	c := p.Status.InitContainerStatuses[i]
	if ended := c.State.Terminated; ended != nil && ended.ExitCode == 0 {
		r.pushedTo(w, ref, push.ReadResult(ended.Message))
		return
	}
	for _, ended := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
		if ended == nil {
			continue
		}
		why := cmp.Or(push.ReadResult(ended.Message).Error, ended.Reason)
		was := conditionOf(w.e, conditionPushed)
		r.pushed(w, corev1.ConditionFalse, reasonPushFailed, why+"; the kubelet tries again")
		if now := conditionOf(w.e, conditionPushed); was == nil || was.Message != now.Message {
			r.event(w, corev1.EventTypeWarning, "ImagePushFailed", "%s", why)
		}
		return
	}
	if c.State.Running != nil {
		r.pushed(w, corev1.ConditionFalse, reasonPushing, fmt.Sprintf(
			"pushing to %s; progress: kubectl logs --namespace=%s %s --container=%s", ref, p.Namespace, p.Name, containerPush))
		return
	}
	r.pushed(w, corev1.ConditionFalse, reasonPushPending, "the exporter pod starts")
}

// pushedTo reports an image.
func (r *Reconciler) pushedTo(w *work, ref string, result push.Result) {
	if result.Digest == "" {
		r.pushed(w, corev1.ConditionFalse, reasonPushFailed, "the exporter pod has left no digest: create another export")
		return
	}
	message := ref + "@" + result.Digest
	r.pushed(w, corev1.ConditionTrue, reasonPushed, message)
	r.event(w, corev1.EventTypeNormal, "ImagePushed", "Pushed %s", message)
}
