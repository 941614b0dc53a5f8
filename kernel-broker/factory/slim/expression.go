package slim

import "strings"

// expression is a parsed condition of Kconfig. One that cannot be read holds
// always: what this package believes wrongly to be possible is refused by
// kconfig later, while what it believes wrongly to be impossible is never
// tried.
type expression interface {
	holds(config Config) bool
}

type (
	symbolIs struct {
		left, right string
		not         bool
	}
	symbolOn   string
	anyOf      []expression
	allOf      []expression
	notThis    struct{ inner expression }
	unreadable struct{}
)

func (e symbolOn) holds(config Config) bool   { return valueOf(string(e), config) != "n" }
func (e notThis) holds(config Config) bool    { return !e.inner.holds(config) }
func (e unreadable) holds(config Config) bool { return true }

func (e symbolIs) holds(config Config) bool {
	return e.not != (valueOf(e.left, config) == valueOf(e.right, config))
}

func (e anyOf) holds(config Config) bool {
	for _, part := range e {
		if part.holds(config) {
			return true
		}
	}
	return false
}

func (e allOf) holds(config Config) bool {
	for _, part := range e {
		if !part.holds(config) {
			return false
		}
	}
	return true
}

// valueOf a token: a symbol's value, or the constant itself.
func valueOf(token string, config Config) string {
	if token == "y" || token == "m" || token == "n" {
		return token
	}
	if strings.ContainsAny(token, `"'`) {
		return strings.Trim(token, `"'`)
	}
	if value, set := config[token]; set {
		return strings.Trim(value, `"`)
	}
	if token != "" && token[0] >= '0' && token[0] <= '9' {
		return token
	}
	return "n"
}

// readExpression parses symbols, !, &&, ||, =, != and parentheses.
func readExpression(text string) expression {
	parser := expressionParser{rest: expressionTokens(text)}
	parsed := parser.either()
	if parser.confused || len(parser.rest) > 0 {
		return unreadable{}
	}
	return parsed
}

type expressionParser struct {
	rest     []string
	confused bool
	depth    int
}

func (p *expressionParser) either() expression {
	parts := anyOf{p.both()}
	for p.accept("||") {
		parts = append(parts, p.both())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return parts
}

func (p *expressionParser) both() expression {
	parts := allOf{p.term()}
	for p.accept("&&") {
		parts = append(parts, p.term())
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return parts
}

// nested is deeper than any condition of the kernel.
const nested = 100

func (p *expressionParser) term() expression {
	if p.depth++; p.depth > nested {
		p.confused = true
		return unreadable{}
	}
	defer func() { p.depth-- }()
	if p.accept("!") {
		return notThis{p.term()}
	}
	if p.accept("(") {
		inner := p.either()
		p.confused = p.confused || !p.accept(")")
		return inner
	}
	left := p.next()
	if p.accept("=") {
		return symbolIs{left: left, right: p.next()}
	}
	if p.accept("!=") {
		return symbolIs{left: left, right: p.next(), not: true}
	}
	return symbolOn(left)
}

func (p *expressionParser) accept(token string) bool {
	if len(p.rest) == 0 || p.rest[0] != token {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *expressionParser) next() string {
	if len(p.rest) == 0 || strings.ContainsAny(p.rest[0][:1], "&|=!()<>$") {
		p.confused = true
		return ""
	}
	token := p.rest[0]
	p.rest = p.rest[1:]
	return token
}

func expressionTokens(text string) []string {
	var tokens []string
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		length := tokenLength(rest)
		tokens = append(tokens, rest[:length])
		rest = rest[length:]
	}
	return tokens
}

func tokenLength(rest string) int {
	for _, operator := range []string{"&&", "||", "!="} {
		if strings.HasPrefix(rest, operator) {
			return len(operator)
		}
	}
	if strings.ContainsAny(rest[:1], "!()=<>$&|") {
		return 1
	}
	if rest[0] == '"' || rest[0] == '\'' {
		if end := strings.IndexByte(rest[1:], rest[0]); end >= 0 {
			return end + 2
		}
		return len(rest)
	}
	if end := strings.IndexAny(rest, " \t!()=<>$&|\"'"); end > 0 {
		return end
	}
	return len(rest)
}
