package vmspec

import (
	"cmp"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kubevirt "kubevirt.io/api/core/v1"
)

// devices reads what a VMI has beside disks and network cards into s.
func (s *Spec) devices(at *field.Path, d kubevirt.Devices) field.ErrorList {
	s.RNG = d.Rng != nil
	s.VSOCK = isOr(d.AutoattachVSOCK, false)
	s.USBRedirection = d.ClientPassthrough != nil
	s.MetricsPort = d.DownwardMetrics != nil
	s.Transitional = isOr(d.UseVirtioTransitional, false)
	s.NoHotplug = d.DisableHotplug
	s.Balloon = isOr(d.AutoattachMemBalloon, true)
	s.NoSerial = !isOr(d.AutoattachSerialConsole, true)
	s.NoConsoleLog = !isOr(d.LogSerialConsole, true)
	s.TPM = d.TPM != nil && isOr(d.TPM.Enabled, true)
	problems := append(s.inputs(at.Child("inputs"), d), s.display(at, d)...)
	problems = append(problems, s.sound(at.Child("sound"), d.Sound)...)
	for _, p := range d.PanicDevices {
		s.HypervPanic = s.HypervPanic || p.Model != nil && *p.Model == kubevirt.Hyperv
	}
	problems = append(problems, checkUSB(at, s)...)
	return append(problems, s.watchdog(at.Child("watchdog"), d.Watchdog)...)
}

// display reads the graphics card. KubeVirt attaches one by default.
func (s *Spec) display(at *field.Path, d kubevirt.Devices) field.ErrorList {
	s.Display = hasDisplay(d)
	switch {
	case d.Video != nil && !s.Display:
		return field.ErrorList{refused(at.Child("video"), "requires autoattachGraphicsDevice")}
	case d.Video != nil:
		s.Video = d.Video.Type
	}
	return nil
}

// hasDisplay reports whether the VM has a graphics card.
func hasDisplay(d kubevirt.Devices) bool { return isOr(d.AutoattachGraphicsDevice, d.Video != nil) }

// sound reads the sound card, which is KubeVirt's default one without a model.
func (s *Spec) sound(at *field.Path, given *kubevirt.SoundDevice) field.ErrorList {
	switch {
	case given == nil:
		return nil
	case given.Name == "":
		return field.ErrorList{field.Required(at.Child("name"), "")}
	}
	s.Sound = cmp.Or(given.Model, "ich9")
	return nil
}

// defaultInput is KubeVirt's name of the device that autoattachInputDevice adds.
const defaultInput = "default-0"

// inputs reads the input devices. As with KubeVirt a type or bus that is not given
// is a tablet on USB, and autoattachInputDevice adds one to a VMI without any.
func (s *Spec) inputs(at *field.Path, d kubevirt.Devices) field.ErrorList {
	var problems field.ErrorList
	names := map[string]bool{}
	for i, given := range d.Inputs {
		switch {
		case given.Name == "":
			problems = append(problems, field.Required(at.Index(i).Child("name"), ""))
		case names[given.Name]:
			problems = append(problems, field.Duplicate(at.Index(i).Child("name"), given.Name))
		}
		names[given.Name] = true
		s.Inputs = append(s.Inputs, Input{Name: given.Name, Bus: string(cmp.Or(given.Bus, kubevirt.InputBusUSB))})
	}
	if len(s.Inputs) == 0 && isOr(d.AutoattachInputDevice, false) {
		s.Inputs = []Input{{Name: defaultInput, Bus: string(kubevirt.InputBusUSB)}}
	}
	return problems
}

// watchdog reads the watchdog. KubeVirt's default is to reset the guest.
func (s *Spec) watchdog(at *field.Path, given *kubevirt.Watchdog) field.ErrorList {
	switch {
	case given == nil:
		return nil
	case given.Name == "":
		return field.ErrorList{field.Required(at.Child("name"), "")}
	case given.I6300ESB == nil:
		return field.ErrorList{field.Required(at.Child("i6300esb"), "the only model")}
	}
	s.Watchdog = cmp.Or(WatchdogAction(given.I6300ESB.Action), WatchdogReset)
	return nil
}

// isOr returns a flag, or its default if it is not given.
func isOr(flag *bool, otherwise bool) bool {
	if flag == nil {
		return otherwise
	}
	return *flag
}
