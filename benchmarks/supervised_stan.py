"""The ten supervised posteriors in Stan's language: one program, and what differs in it from response to response."""

from __future__ import annotations

from supervised_data import Design

ABOUT = """\
// {title}
//
// Topics of words are discrete and Stan needs them summed out. Word by word, as in lda.stan, that cannot be done here: the
// response reads zbar, the shares of topics among all words of a document, and so ties them together. But documents are so
// short that every assignment of topics to a document's words can be listed: log_p[d] is the log of a sum of K^n terms,
// exact for any response. theta is integrated out as well: p(z | alpha) is that of Polya's urn.
//
// Topics may be renumbered without a change of the density. Compare what stands under generated quantities{beside}.
"""

FUNCTIONS = """\
functions {
  // log of the probability of one assignment with these counts of topics, theta ~ dirichlet(alpha) integrated out
  real urn(vector counts, vector alpha) {
    return lgamma(sum(alpha)) - lgamma(sum(alpha) + sum(counts)) + sum(lgamma(alpha + counts)) - sum(lgamma(alpha));
  }
}
"""

TRANSFORMED_DATA = """\
transformed data {
  array[M] int first = rep_array(0, M);  // a document's first word
  array[M] int num_words = rep_array(0, M);
  array[M] int num_assignments = rep_array(1, M);
  for (n in 1:N) {
    if (num_words[doc[n]] == 0) {
      first[doc[n]] = n;
    }
    num_words[doc[n]] += 1;
    num_assignments[doc[n]] *= K;
  }
}
"""

LISTED = """\
transformed parameters {{
  vector[M] log_p;  // log p(w_d, y_d | phi, eta, ...)
  {{
    array[K] vector[V] log_phi = log(phi);
    for (d in 1:M) {{
      vector[num_assignments[d]] terms;
      for (a in 1:num_assignments[d]) {{
        int rest = a - 1;  // the topics are its digits to base K
        vector[K] counts = rep_vector(0, K);
        vector[num_words[d]] of_words;
        for (n in 1:num_words[d]) {{
          int k = rest % K + 1;
          rest = rest %/% K;
          counts[k] += 1;
          of_words[n] = log_phi[k, w[first[d] + n - 1]];
        }}
        {predictor}
        terms[a] = urn(counts, alpha) + sum(of_words) + {response};
      }}
      log_p[d] = log_sum_exp(terms);
    }}
  }}
}}
"""

TITLES = {
    "normal": "a normal response", "student_t": "a Student-t response and a covariate", "poisson": "a count",
    "logit": "two classes, logistic", "probit": "two classes, probit", "ordered": "ordered classes", "softmax": "classes",
    "partial": "the epsilon-insensitive loss as a density",
}  # fmt: skip
# y as it is declared, and its log-density given the predictor x
RESPONSES = {
    "normal": ("vector[M] y;", "normal_lpdf(y[d] | x_d, sigma)"),
    "student_t": ("vector[M] y;", "student_t_lpdf(y[d] | df, x_d, sigma)"),
    "partial": (
        "vector[M] y;",
        "(-weight * fmax(0, abs(y[d] - x_d) - epsilon) - log(2 * epsilon + 2 / weight))",
    ),
    "poisson": ("array[M] int<lower=0> y;", "poisson_log_lpmf(y[d] | x_d)"),
    "logit": ("array[M] int<lower=0, upper=1> y;", "bernoulli_logit_lpmf(y[d] | x_d)"),
    "probit": ("array[M] int<lower=0, upper=1> y;", "std_normal_lcdf((2 * y[d] - 1) * x_d |)"),
    "ordered": ("array[M] int<lower=1, upper=C> y;", "ordered_logistic_lpmf(y[d] | x_d, cuts)"),
    "softmax": ("array[M] int<lower=1, upper=C> y;", "categorical_logit_lpmf(y[d] | x_d)"),
}
SAID = {
    "scale": "prior deviation of coefficients", "df": "degrees of freedom", "cut_scale": "prior deviation of cuts",
    "alpha_mean": "prior mean of alpha", "nu": "prior scale of coefficients", "weight": "of the loss",
    "epsilon": "errors up to it cost nothing",
}  # fmt: skip


def block(name: str, lines: list[str]) -> str:
    return f"{name} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def declared(design: Design) -> list[str]:
    """The data."""
    lines = ["int<lower=2> K;  // topics", "int<lower=2> V;  // terms", "int<lower=1> M;  // documents"]
    lines += ["int<lower=1> N;  // words", "array[N] int<lower=1, upper=V> w;"]
    lines += ["array[N] int<lower=1, upper=M> doc;  // in rising order"]
    lines += ["int<lower=2> C;  // classes"] if "C" in design.numbers else []
    lines += ["vector[M] x;  // a covariate"] if design.covariate else []
    lines += [RESPONSES[design.response][0]]
    lines += [] if design.learned else ["vector<lower=0>[K] alpha;"]
    lines += ["vector<lower=0>[V] gamma;"]
    return lines + [f"real<lower=0> {name};  // {SAID[name]}" for name in design.numbers if name != "C"]


def unknown(design: Design) -> tuple[list[str], list[str]]:
    """Parameters and their priors."""
    several, laplace = design.response == "softmax", design.coefficients == "laplace"
    lines, priors = ["array[K] simplex[V] phi;"], ["for (k in 1:K) {", "  phi[k] ~ dirichlet(gamma);", "}"]
    lines += ["matrix[K, C] eta;"] if several else ["vector[K] eta;"]
    law = "double_exponential(0, nu)" if laplace else "normal(0, scale)"
    priors += [f"{'to_vector(eta)' if several else 'eta'} ~ {law};"]
    if laplace and "nu" not in design.numbers:
        lines, priors = lines + ["real<lower=0> nu;"], priors + ["nu ~ inv_gamma(2, 1);"]
    if design.response in ("normal", "student_t"):
        lines, priors = lines + ["real<lower=0> sigma;"], priors + ["sigma ~ normal(0, 1);  // its positive half"]
    if design.covariate:
        lines, priors = lines + ["real slope;"], priors + ["slope ~ normal(0, scale);"]
    if design.response == "ordered":  # normal in the first and in the logarithms of the gaps
        lines += ["ordered[C - 1] cuts;"]
        priors += ["cuts[1] ~ normal(0, cut_scale);", "cuts[2:(C - 1)] - cuts[1:(C - 2)] ~ lognormal(0, cut_scale);"]
    if design.learned:
        lines, priors = lines + ["vector<lower=0>[K] alpha;"], priors + ["alpha ~ exponential(1 / alpha_mean);"]
    return lines, priors + ["target += log_p;"]


def compared(design: Design) -> list[str]:
    """Quantities that do not change when topics are renumbered; parameters that are such quantities need no line."""
    lines = ["real log_likelihood = sum(log_p);", "real phi_overlap = 0;", "vector[V] phi_squared = rep_vector(0, V);"]
    of_topic = [
        "phi_squared += square(phi[k]);",
        *["for (l in 1:(k - 1)) {", "  phi_overlap += dot_product(phi[k], phi[l]);", "}"],
    ]
    if design.response == "softmax":
        lines += [f"vector[C] eta_{name};" for name in ("sum", "squared", "product", "range")]
        lines += ["matrix[V, C] eta_phi = rep_matrix(0, V, C);"]
        of_topic += ["eta_phi += phi[k] * eta[k];"]
        last = ["for (c in 1:C) {", *(f"  eta_{name}[c] = {value};" for name, value in {
            "sum": "sum(eta[, c])", "squared": "dot_self(eta[, c])", "product": "(square(eta_sum[c]) - eta_squared[c]) / 2",
            "range": "max(eta[, c]) - min(eta[, c])",
        }.items()), "}"]  # fmt: skip
    else:
        lines += ["real eta_sum = sum(eta);", "real eta_squared = dot_self(eta);"]
        lines += ["real eta_product = (square(eta_sum) - eta_squared) / 2;", "real eta_range = max(eta) - min(eta);"]
        lines += ["vector[V] eta_phi = rep_vector(0, V);"]
        of_topic += ["eta_phi += eta[k] * phi[k];"]
        last = []
    if design.coefficients == "laplace" and "nu" not in design.numbers:
        lines += ["real log_nu = log(nu);"]
    if design.learned:
        lines += ["real alpha_sum = sum(alpha);", "real alpha_squared = dot_self(alpha);"]
        lines += ["real eta_alpha = dot_product(eta, alpha);"]
    return [*lines, "for (k in 1:K) {", *(f"  {line}" for line in of_topic), "}", *last]


def program(design: Design) -> str:
    """The Stan program of a posterior."""
    title = f"Topics with {TITLES[design.response]}"
    title += ", sparse coefficients" if design.coefficients == "laplace" else ""
    title += ", alpha learned" if design.learned else ""
    beside = [name for name, there in {
        "sigma": design.response in ("normal", "student_t"), "slope": design.covariate, "cuts": design.response == "ordered"
    }.items() if there]  # fmt: skip
    predictor = "real x_d = dot_product(eta, counts) / num_words[d]" + (" + slope * x[d];" if design.covariate else ";")
    if design.response == "softmax":
        predictor = "vector[C] x_d = eta' * counts / num_words[d];"
    parameters, priors = unknown(design)
    return "".join([
        ABOUT.format(title=title, beside="".join(f", and {name}" for name in beside)),
        FUNCTIONS, block("data", declared(design)), TRANSFORMED_DATA, block("parameters", parameters),
        LISTED.format(predictor=predictor, response=RESPONSES[design.response][1]), block("model", priors),
        block("generated quantities", compared(design)),
    ])  # fmt: skip
