package fault

import "strings"

// An Override changes what a fault of one tool means, as its manifest says (seed 000 §1.3).
type Override struct {
	Class   Class // Transient or Permanent; anything else keeps the kind's own
	Retry   *bool // nil keeps what the class says
	Breaker *bool // whether it counts; nil keeps what the class says
}

// Overrides is what one tool's manifest says about its faults. The zero value says nothing. It is only read, so many
// goroutines may share one.
type Overrides struct {
	Kinds map[Kind]Override
	Codes map[string]Override // by Fault.Code; applied after Kinds, so a code wins
}

// A Verdict is what one fault means for one tool.
type Verdict struct {
	Class   Class
	Retry   RetryRule
	Breaker bool // counts as a failure of the tool

	// Because says what the manifest changed, in words. Empty where it said nothing.
	Because string
}

// Judge says what f means: a code wins over a kind, a kind over the table. What a permanent class implies (no retry, not
// the breaker's business) and what a transient one does can be changed by the same override, field by field.
//
// What is known of the run comes before the table. Where something may have run, a rule that rests on nothing having
// run becomes ByEffect; where certainly nothing ran, ByEffect becomes Always.
//
// What the executor did itself (circuit_open, cancelled, deadline, loop_blocked) no manifest can change. A nil fault
// means nothing.
func (o Overrides) Judge(f *Fault) Verdict {
	if f == nil {
		return Verdict{}
	}
	r := f.Kind.row()
	base := Verdict{Class: r.Class, Retry: given(r.Retry, f.Run()), Breaker: r.CountsForBreaker}
	if r.ours {
		return base
	}

	v := base
	if k, ok := o.Kinds[f.Kind]; ok {
		v = v.with(k, base, f)
		v.say(string(f.Kind), k)
	}
	if c, ok := o.Codes[f.Code]; ok && f.Code != "" {
		v = v.with(c, base, f)
		v.say("code "+f.Code, c)
	}
	return v
}

// with is v as o changes it. A class that the table gives too brings back what the table says.
func (v Verdict) with(o Override, base Verdict, f *Fault) Verdict {
	switch {
	case o.Class == Permanent:
		v.Class, v.Retry, v.Breaker = Permanent, Never, false
	case o.Class == Transient && base.Class == Transient:
		v.Class, v.Retry, v.Breaker = base.Class, base.Retry, base.Breaker
	case o.Class == Transient:
		v.Class, v.Retry, v.Breaker = Transient, given(ByEffect, f.Run()), true
	}
	switch {
	case o.Retry == nil:
	case !*o.Retry:
		v.Retry = Never
	case v.Retry == Never:
		v.Retry = given(ByEffect, f.Run())
	}
	if o.Breaker != nil {
		v.Breaker = *o.Breaker
	}
	return v
}

// say adds what o says of subject to the reason.
func (v *Verdict) say(subject string, o Override) {
	var said []string
	if o.Class == Permanent || o.Class == Transient {
		said = append(said, "is "+string(o.Class))
	}
	if o.Retry != nil {
		said = append(said, choose(*o.Retry, "is retried", "is not retried"))
	}
	if o.Breaker != nil {
		said = append(said, choose(*o.Breaker, "counts for the breaker", "does not count for the breaker"))
	}
	if len(said) == 0 {
		return
	}
	sentence := subject + " " + strings.Join(said, " and ")
	if v.Because == "" {
		v.Because = "the manifest says " + sentence
		return
	}
	v.Because += ", and " + sentence
}

// given is the rule in the light of what is known of the run.
func given(rule RetryRule, run Execution) RetryRule {
	switch {
	case rule == ByEffect && run == NotStarted:
		return Always
	case rule == Never || rule == ByEffect || run == NotStarted:
		return rule
	}
	return ByEffect
}

func choose(cond bool, yes, no string) string {
	if cond {
		return yes
	}
	return no
}
