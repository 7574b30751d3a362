package breaker

// Every value carries its writer's nonce and those of the writes before it. So who does not know what became of a write,
// because the answer was lost or was a conflict, which is no proof, looks at what stands now and finds out, even where
// others have written since.

// A Fate is what became of a write.
type Fate uint8

// The fates.
const (
	Unclear Fate = iota // too much was written since
	Stands              // it was written; what follows it follows from it
	Waits               // what it was to replace still stands: it may yet come. Send the very same again, nothing else
	Missed              // another took its place: it was not written and never will be
)

// Fate says what became of the write of this nonce, which was to replace the value of the nonce before; "" where there was
// no value.
func (s *Seen) Fate(nonce, before string) Fate {
	if s.Rev == 0 {
		if before == "" {
			return Waits
		}
		return Unclear // the key is gone
	}
	for i := -1; i < len(s.Value.Past); i++ {
		at := s.Value.Nonce
		if i >= 0 {
			at = s.Value.Past[i]
		}
		switch {
		case at == nonce:
			return Stands
		case at == before && i < 0:
			return Waits
		case at == before:
			return Missed
		}
	}
	if before == "" && len(s.Value.Past) < maxPast {
		return Missed // these are all the writes that there were
	}
	return Unclear
}

// past is what the value that follows v carries.
func (v *Shared) past() []string {
	if v.Nonce == "" {
		return nil
	}
	return append([]string{v.Nonce}, v.Past[:min(len(v.Past), maxPast-1)]...)
}
