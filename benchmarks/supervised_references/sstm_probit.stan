// Topics with two classes, probit, sparse coefficients
//
// Topics of words are discrete and Stan needs them summed out. Word by word, as in lda.stan, that cannot be done here: the
// response reads zbar, the shares of topics among all words of a document, and so ties them together. But documents are so
// short that every assignment of topics to a document's words can be listed: log_p[d] is the log of a sum of K^n terms,
// exact for any response. theta is integrated out as well: p(z | alpha) is that of Polya's urn.
//
// Topics may be renumbered without a change of the density. Compare what stands under generated quantities.
functions {
  // log of the probability of one assignment with these counts of topics, theta ~ dirichlet(alpha) integrated out
  real urn(vector counts, vector alpha) {
    return lgamma(sum(alpha)) - lgamma(sum(alpha) + sum(counts)) + sum(lgamma(alpha + counts)) - sum(lgamma(alpha));
  }
}
data {
  int<lower=2> K;  // topics
  int<lower=2> V;  // terms
  int<lower=1> M;  // documents
  int<lower=1> N;  // words
  array[N] int<lower=1, upper=V> w;
  array[N] int<lower=1, upper=M> doc;  // in rising order
  array[M] int<lower=0, upper=1> y;
  vector<lower=0>[K] alpha;
  vector<lower=0>[V] gamma;
  real<lower=0> nu;  // prior scale of coefficients
}
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
parameters {
  array[K] simplex[V] phi;
  vector[K] eta;
}
transformed parameters {
  vector[M] log_p;  // log p(w_d, y_d | phi, eta, ...)
  {
    array[K] vector[V] log_phi = log(phi);
    for (d in 1:M) {
      vector[num_assignments[d]] terms;
      for (a in 1:num_assignments[d]) {
        int rest = a - 1;  // the topics are its digits to base K
        vector[K] counts = rep_vector(0, K);
        vector[num_words[d]] of_words;
        for (n in 1:num_words[d]) {
          int k = rest % K + 1;
          rest = rest %/% K;
          counts[k] += 1;
          of_words[n] = log_phi[k, w[first[d] + n - 1]];
        }
        real x_d = dot_product(eta, counts) / num_words[d];
        terms[a] = urn(counts, alpha) + sum(of_words) + std_normal_lcdf((2 * y[d] - 1) * x_d |);
      }
      log_p[d] = log_sum_exp(terms);
    }
  }
}
model {
  for (k in 1:K) {
    phi[k] ~ dirichlet(gamma);
  }
  eta ~ double_exponential(0, nu);
  target += log_p;
}
generated quantities {
  real log_likelihood = sum(log_p);
  real phi_overlap = 0;
  vector[V] phi_squared = rep_vector(0, V);
  real eta_sum = sum(eta);
  real eta_squared = dot_self(eta);
  real eta_product = (square(eta_sum) - eta_squared) / 2;
  real eta_range = max(eta) - min(eta);
  vector[V] eta_phi = rep_vector(0, V);
  for (k in 1:K) {
    phi_squared += square(phi[k]);
    for (l in 1:(k - 1)) {
      phi_overlap += dot_product(phi[k], phi[l]);
    }
    eta_phi += eta[k] * phi[k];
  }
}
